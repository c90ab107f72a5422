# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the scripts that build. It runs the steps of a script and reports which step runs, how
# many there are, how far it has come and how long it took. It also sets the flags that all programs
# are compiled with: packages that two programs share are compiled once only if the flags are equal.
# shellcheck shell=bash

# The flags are those of the Makefile, which says why.
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false -tags=grpcnotrace'

progress_interval=15 # seconds between two lines of a step that runs
progress_step=0
progress_steps=1

# steps COUNT sets how many steps follow.
steps() {
	progress_step=0 progress_steps=$1
}

# step NAME COMMAND [ARGUMENT...] runs the command as the next step. Its output is kept in a file and
# shown only if it fails. It returns the command's status, with which "set -e" ends the script. It does
# not exit itself: a trap on EXIT would see its local variables in place of the script's.
step() {
	local name=$1 began=$SECONDS log status ticker hold
	shift
	log=$(mktemp)
	((++progress_step))
	local prefix="${0##*/}: step $progress_step of $progress_steps"
	echo "$prefix: $name"
	exec {hold}<> <(:) # an empty pipe: "read -t" on it sleeps without starting a process
	while read -rt "$progress_interval" -u "$hold" || [[ -d /proc/$$ ]]; do
		echo "$prefix: $name: $((SECONDS - began)) s$(progress_of "$log")"
	done &
	ticker=$!
	# Bash ignores "set -e" in a command whose status is tested by "if" or "||", even in the functions
	# that it calls. So run the command in a subshell, and read its status afterwards.
	set +e
	(set -e && "$@") >"$log" 2>&1
	status=$?
	set -e
	kill "$ticker"
	wait "$ticker" 2>/dev/null || true
	exec {hold}<&-
	if ((status)); then
		# Leave out the lines without blanks: "go build -v" prints one for each compiled package. Unlike
		# grep, sed does not fail if no other line exists.
		sed -n '/[[:space:]]/p' "$log" | tail -n 40 >&2
		rm -f "$log"
		echo "$prefix: $name: failed after $((SECONDS - began)) s" >&2
		return "$status"
	fi
	rm -f "$log"
	echo "$prefix: $name: done in $((SECONDS - began)) s"
}

# progress_of LOG prints how far "go build -v" has come.
progress_of() {
	local fetched compiled
	fetched=$(grep -c '^go: downloading ' "$1")
	compiled=$(grep -c '^[^[:space:]]*$' "$1")
	((!fetched)) || printf ', %d modules downloaded' "$fetched"
	((!compiled)) || printf ', %d packages compiled' "$compiled"
}
