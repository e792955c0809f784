package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"tallystick/replica"
	"tallystick/server"
)

// private checks that nobody else may use a file or folder, and sees to it
// with --fix.
func (d *doctor) private(path string, want os.FileMode) (state, problem string) {
	info, err := os.Stat(path)
	if err != nil {
		return checkFail, err.Error()
	}
	if runtime.GOOS == "windows" || info.Mode().Perm()&0o077 == 0 {
		return checkOK, ""
	}
	problem = fmt.Sprintf("%s has mode %04o, others on this machine can get at it", path, info.Mode().Perm())
	if d.fix {
		if err := os.Chmod(path, want); err == nil {
			return checkFixed, fmt.Sprintf("%s had mode %04o and has %04o now", path, info.Mode().Perm(), want)
		}
	}
	return checkFail, problem
}

func (d *doctor) folders() {
	good := true
	for _, dir := range []string{d.h.Data, d.h.State, d.h.Run, d.h.Config} {
		state, problem := d.private(dir, 0o700)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && (dir == d.h.Run || dir == d.h.Config) {
			continue // made at the next start
		}
		if state != checkOK {
			good = false
			d.add("folders", state, ifFail(state, "chmod 700 "+dir), "%s", problem)
		}
	}
	if good {
		d.add("folders", checkOK, "", "data, state, run and config are private")
	}
}

func ifFail(state, hint string) string {
	if state == checkFail {
		return hint
	}
	return ""
}

func (d *doctor) keys() {
	good := true
	for _, name := range []string{"device.key", "store.key"} {
		path := filepath.Join(d.h.State, name)
		state, problem := d.private(path, 0o600)
		if state != checkOK {
			good = false
			d.add("keys", state, ifFail(state, "put the file back from where it went, readable by you alone: chmod 600 "+path), "%s", problem)
		}
	}
	if good {
		where := "device and store key are in files that only you can read"
		if replica.KeyInKeyring(d.h.State) {
			where = "the store's key is in the system's keyring, the device key in a file that only you can read"
		}
		d.add("keys", checkOK, "", "%s", where)
	}
}

// reserveBytes is what the log leaves free on the disk, see oplog.Config.MinFree.
const reserveBytes = 160 << 20

func (d *doctor) disk() {
	free, ok := freeDisk(d.h.Data)
	switch {
	case !ok:
		d.add("disk", checkSkip, "", "how much is free is not known")
	case free < reserveBytes:
		d.add("disk", checkFail, "free some space; writes are refused until then, reads go on", "%d MiB are free, %d MiB must stay free", free>>20, int64(reserveBytes)>>20)
	case free < 4*reserveBytes:
		d.add("disk", checkWarn, "free some space", "only %d MiB are free", free>>20)
	default:
		d.add("disk", checkOK, "", "%d MiB are free", free>>20)
	}
	if info, err := os.Stat(d.h.ballastFile()); err == nil {
		d.add("ballast", checkOK, "", "%d MiB to drop when the disk is full", info.Size()>>20)
	} else {
		d.add("ballast", checkWarn, "the next start makes one when there is plenty of room, unless TALLY_BALLAST is off", "there is none to drop when the disk is full")
	}
}

// diskAgain looks at the disk once more, after room was made.
func (d *doctor) diskAgain() {
	d.d.Checks = slices.DeleteFunc(d.d.Checks, func(c check) bool { return c.Name == "disk" })
	if free, ok := freeDisk(d.h.Data); ok && free >= reserveBytes {
		d.add("disk", checkWarn, "free some space", "only %d MiB are free", free>>20)
	} else {
		d.add("disk", checkFail, "free some space; writes are refused until then", "still too little is free, %d MiB must be", int64(reserveBytes)>>20)
	}
}

func (d *doctor) continuity(h *server.Health) {
	if h.Ended != "" {
		d.add("membership", checkFail, "what it holds stays readable; to write again, join as a new machine from another TALLY_HOME", "%s", h.Ended)
	}
	if h.Doubt != "" {
		d.add("continuity", checkWarn, "nothing to do when this was a restore or a move; else find out what put the store back", "this replica writes in a new incarnation: %s", h.Doubt)
	} else {
		d.add("continuity", checkOK, "", "the store goes on from where it stopped on this machine")
	}
	if len(h.Forks) > 0 {
		d.add("forks", checkWarn, "a store was copied or put back; every branch is kept, and each copy must have a machine of its own", "%s", strings.Join(h.Forks, "; "))
	} else {
		d.add("forks", checkOK, "", "no origin has forked")
	}
	for _, b := range h.Broken {
		d.add("promises", checkWarn, "its clock or its program is wrong; tally backup --with-key and tally restore on that machine begin a new log and seal this one, until then claims stay provisional", "%s", b)
	}
	if len(h.Broken) == 0 {
		d.add("promises", checkOK, "", "every replica stamps as it has promised")
	}
}

// damage tells of entries whose bytes on this disk have changed.
func (d *doctor) damage(h *server.Health) {
	w := h.Damage
	switch {
	case w.Found == 0:
		return
	case w.Waiting == 0:
		d.add("damage", checkOK, "look at the disk: bytes on it have changed", "%s damaged, all fetched again from peers", pluralOf(int(w.Found), "entry was", "entries were"))
	default:
		d.add("damage", checkFail, "start or connect a replica that holds them; with none, restore a backup with tally restore, or join again from a fresh home",
			"%s damaged, %d fetched again from peers, %d waiting for a peer", pluralOf(int(w.Found), "entry", "entries"), w.Mended, w.Waiting)
	}
}

func (d *doctor) aside(h *server.Health) {
	if h.Held > 0 {
		d.add("held", checkWarn, "see tally quarantine", "%s for their time or for their device's admission", pluralOf(h.Held, "entry waits", "entries wait"))
	} else {
		d.add("held", checkOK, "", "no entry waits")
	}
	if h.Quarantined > 0 {
		d.add("quarantined", checkWarn, "see tally quarantine; a newer version may understand them", "%s cannot be folded", pluralOf(h.Quarantined, "entry", "entries"))
	} else {
		d.add("quarantined", checkOK, "", "every entry is understood")
	}
	if n := h.Owed - h.Damage.Waiting; n > 0 {
		d.add("owed", checkWarn, "they are asked of every peer that holds them; see tally quarantine", "%s without the payload", pluralOf(n, "entry came", "entries came"))
	}
	if h.ErasePend > 0 {
		d.add("erase", checkWarn, "it goes on by itself; see tally erase --status", "%s yet to be erased", pluralOf(h.ErasePend, "entry is", "entries are"))
	}
	if h.Paused {
		d.add("intake", checkFail, "free some space", "entries of peers are not taken, most likely because the disk is full")
	}
	if h.Flagged {
		d.add("label", checkWarn, "give this machine another with tally rename LABEL", "another machine had the label %s before; this one may not claim", h.Label)
	}
}

func (d *doctor) clock(h *server.Health) {
	bound := time.Duration(h.BoundMS) * time.Millisecond
	if h.Outlier {
		d.add("clock", checkFail, "set this machine's clock, and have it kept by NTP", "it differs by %v from most others", time.Duration(h.OffsetMS)*time.Millisecond)
		return
	}
	var off []string
	n := 0
	for _, p := range h.Peers {
		if !p.Reachable {
			continue
		}
		n++
		if o := time.Duration(p.OffsetMS) * time.Millisecond; o.Abs() > bound/10 {
			off = append(off, fmt.Sprintf("%s by %v", p.Label, o))
		}
	}
	switch {
	case len(off) > 0:
		d.add("clock", checkWarn, "set the one that is wrong; beyond "+bound.String()+" entries are held", "it differs from %s", strings.Join(off, ", "))
	case n == 0:
		d.add("clock", checkOK, "", "no peer to compare with")
	default:
		d.add("clock", checkOK, "", "it agrees with %s", plural(n, "peer"))
	}
}

func (d *doctor) peers(h *server.Health) {
	if len(h.Peers) == 0 {
		d.add("peers", checkOK, "", "this is the only machine of its mesh")
		return
	}
	reached := 0
	for _, p := range h.Peers {
		if p.Reachable {
			reached++
			if p.Error != "" {
				d.add("peers", checkWarn, "free some space on its disk; it goes on by itself", "%s takes no entries: %s", oneLine(p.Label, 60), p.Error)
			}
			continue
		}
		seen := "never seen"
		if p.LastSeen != "" {
			seen = "last seen " + shortTime(p.LastSeen)
		}
		name := p.Label
		if name == "" {
			name = p.Address
		}
		why := ""
		if p.Error != "" {
			why = ": " + p.Error
		}
		d.add("peers", checkWarn, "fine when it sleeps; else see that it runs, and that its port is open", "%s is unreachable, %s%s", oneLine(name, 60), seen, why)
	}
	if reached > 0 {
		d.add("peers", checkOK, "", "%d of %d are reachable", reached, len(h.Peers))
	}
}

// port dials the own mesh port, as a peer would.
func (d *doctor) port(ctx context.Context, h *server.Health) {
	dial := net.Dialer{Timeout: 2 * time.Second}
	var last error
	for _, addr := range h.Addresses {
		c, err := dial.DialContext(ctx, "tcp", addr)
		if err == nil {
			c.Close()
			d.add("port", checkOK, "", "the mesh port answers at %s", addr)
			return
		}
		last = err
	}
	d.add("port", checkWarn, "see --listen of tally up, and the firewall of this machine", "none of %s answers: %v", strings.Join(h.Addresses, ", "), last)
}

// mail tells of mail to names that are known under another one now.
func (d *doctor) mail(ctx context.Context, c *server.Client) {
	s, err := session(d.a.agent, d.a.Dir, "cli")
	if err != nil {
		return
	}
	st, err := c.Status(ctx, s)
	var m meshStatus
	if err != nil || json.Unmarshal(st.Status, &m) != nil {
		d.add("mail", checkSkip, "", "mail to old names could not be looked at")
		return
	}
	for _, o := range m.OldNames {
		d.add("mail", checkWarn, "read it with tally events list --to "+oneLine(o.Name, 80), "%s to %s, which is %s now", pluralOf(o.Events, "event is", "events are"), oneLine(o.Name, 80), oneLine(o.Now, 80))
	}
	if len(m.OldNames) == 0 {
		d.add("mail", checkOK, "", "no mail is to a name of the past")
	}
}
