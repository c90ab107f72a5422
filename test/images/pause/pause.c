/*
 * Copyright The Keelson Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first process of a pod sandbox. It keeps the pod's namespaces open. If
 * the containers share a PID namespace, it is the init process of that
 * namespace and reaps orphaned processes. It exits on SIGINT and SIGTERM.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal) {
	(void)signal;
	_exit(0);
}

static void collect(int signal) {
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

static void on(int signal, void (*handler)(int)) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
	if (sigaction(signal, &action, NULL) < 0) {
		perror("pause: sigaction");
		exit(1);
	}
}

int main(void) {
	on(SIGINT, leave);
	on(SIGTERM, leave);
	on(SIGCHLD, collect);
	for (;;) {
		pause();
	}
}
