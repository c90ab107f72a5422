/*
 * Copyright The Keelson Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first process of a pod sandbox. It holds the pod's namespaces open, and
 * where containers share a PID namespace it is their init: it collects the
 * processes that nobody else waits for. It leaves on SIGINT and SIGTERM.
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
