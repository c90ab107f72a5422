#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs one of the long checks that take turns in CI. CI runs one of them for each change and chooses
# it by the hash of the commit, so that each check runs once in a few changes.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/turn.sh [--list | --record] [TURN]

		Runs the check TURN, or the check that the hash of the current commit chooses, for at most
		32 minutes.

		--list    print the names of the checks
		--record  if the check passes, write date, commit and duration to docs/project/turns.md
	USAGE
}

# turns and parts have the names of the checks. Most checks take 20 to 30 minutes on two cores. A commit
# chooses one of the parts of Kubernetes' integration tests with the probability of four other turns.
turns=(race-1 race-2 fuzz perturb soak upgrade stores conformance-1 conformance-2 conformance-3 monitoring metrics
	machines machine-changes machine-certificates machine-faults conformance-machines)
parts=(integration-{1..16})

# These match the names of tests of machines: changes those of upgrades, certificates those in which certificates are
# replaced, and faults those in which machines fail or are cut off while clients write.
changes='^(TestUpgrade|TestAgentRestarts)'
certificates='^TestCertificates'
faults='^(TestCuts|TestControlPlanes)'

# choose prints the turn that a commit chooses.
choose() {
	local n=$((0x${1:0:8} % (${#turns[@]} + 4)))
	echo "${turns[n]:-${parts[$((0x${1:8:4} % ${#parts[@]}))]}}"
}

run() {
	case $1 in
	race-*) make race SHARE="${1#race-}/2" ;;
	fuzz) make fuzz ;;
	perturb) make perturb SEEDS=100 ;;
	soak) make soak DURATION=20m ;;
	upgrade) make upgrade ;;
	stores)
		make stores
		KEELSON_KUBERNETES=$PWD/.build/kubernetes-1.37 make machines TESTFLAGS='-run ^TestAdopt$'
		;;
	conformance-machines)
		# The commit decides which share runs, so that each runs from time to time.
		part=$((0x$(git rev-parse --short=8 HEAD) / 64 % 4 + 1))
		SHARE=$part/4 ATTEMPTS=2 MACHINES=1 OUT=.build/conformance.md make conformance
		;;
	conformance-*) SHARE=${1#conformance-}/3 ATTEMPTS=2 OUT=.build/conformance.md make conformance ;;
	monitoring) make alerts ;;
	metrics) make metrics ;;
	machines)
		make machines TESTFLAGS="-skip '$changes|$certificates|$faults'"
		hack/package-test.sh
		;;
	machine-changes) make machines TESTFLAGS="-run '$changes'" ;;
	machine-certificates) make machines TESTFLAGS="-run '$certificates'" ;;
	machine-faults) make machines TESTFLAGS="-run '$faults'" ;;
	integration-*) SHARE=${1#integration-}/16 ATTEMPTS=2 OUT=.build/integration.md make integration ;;
	esac
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
record=
case ${1:-} in
-h | --help)
	usage
	exit
	;;
--list)
	printf '%s\n' "${turns[@]}" "${parts[@]}"
	exit
	;;
--record)
	record=yes
	shift
	;;
--run) # the script calls itself with this option to set a time limit
	run "$2"
	exit
	;;
esac

commit=$(git rev-parse --short=12 HEAD)
turn=${1:-$(choose "$commit")}
if [[ " ${turns[*]} ${parts[*]} " != *" $turn "* ]]; then
	usage >&2
	exit 2
fi
if [[ -n $record && -n $(git status --porcelain --untracked-files=no -- . ':!docs/project/turns.md') ]]; then
	echo "turn: --record needs a tree without uncommitted changes" >&2
	exit 1
fi
echo "turn: $turn"
SECONDS=0
hack/limit.sh 32m hack/turn.sh --run "$turn"
row="| $turn | $(date -u +%Y-%m-%d) | $commit | $((SECONDS / 60)) min |"
echo "turn: passed: $row"
[[ -z $record ]] || sed -i "s/^| $turn |.*/$row/" docs/project/turns.md
