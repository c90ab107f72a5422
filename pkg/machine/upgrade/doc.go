// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade switches a machine from one release to another, and back if the new one does not
// work.
//
// Two processes share the work. They agree through a file, the journal:
//
//   - The agent (a Keeper) follows the Machine of its machine. If another release is wanted, it checks
//     that the machine can run it, writes the journal, and starts the switcher. It also reports the
//     outcome.
//   - The switcher (Run) changes the release and restarts all programs, the agent too. It is the
//     program of the old release, so it works even if nothing of the new release does. It needs no API
//     server. systemd starts it again if it ends, and at each boot.
//
// Invariants:
//
//   - The images of the new release are imported before a program stops. After a return, those of the old
//     one are imported again.
//   - The journal is on the disk before anything changes. An entry that is not done says which way the
//     machine goes, so a switcher that was killed at any moment goes on.
//   - The way goes from the new release to the old one at most once, and never back again. So each
//     switch ends, with all programs in one release.
//   - Run looks at what the programs really are. A program that systemd has started again in between is
//     not restarted twice.
//   - A release that did not work is tried again only if the Machine's specification asks for it.
package upgrade
