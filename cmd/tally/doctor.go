package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/server"
)

// States of a check.
const (
	checkOK    = "ok"
	checkWarn  = "warn"  // works, and a person should know
	checkFail  = "fail"  // does not work
	checkFixed = "fixed" // did not work before --fix
	checkSkip  = "skip"  // could not be looked at
)

// check is one line of the doctor.
type check struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// diagnosis is what the doctor found.
type diagnosis struct {
	Checks []check     `json:"checks"`
	Before *mainCounts `json:"before,omitempty"`
	After  *mainCounts `json:"after,omitempty"` // with --fix
}

// mainCounts is what there was before, and is after, something was mended.
type mainCounts struct {
	Entries uint64           `json:"entries"`
	Views   []server.LogView `json:"views"`
}

type doctor struct {
	a   *app
	h   home
	fix bool
	d   diagnosis
}

func newDoctor(a *app) *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this replica from its folders to its peers, and say what to do",
		Long: `Check this replica: one line a check, with a hint where there is something to do.
With --fix it mends what can be mended without losing anything: it sets the modes of
folders and keys, folds views anew that do not add up, and drops the ballast file
when the disk is too full to start.

Exit codes: 0 nothing fails, 1 something does, 7 something could not be looked at, or
was mended only in part.`,
		Example: "  tally doctor\n  tally doctor --fix\n  tally doctor --json | jq '.checks[] | select(.state != \"ok\")'",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.home()
			if err != nil {
				return err
			}
			d := &doctor{a: a, h: h, fix: fix}
			d.run(cmd.Context())
			err = a.tell(d.d, d.print)
			if code := d.exit(); err == nil && code != exitOK {
				err = quiet{code}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what can be mended without losing anything")
	return cmd
}

func (d *doctor) add(name, state, hint, format string, args ...any) {
	d.d.Checks = append(d.d.Checks, check{name, state, fmt.Sprintf(format, args...), hint})
}

func (d *doctor) count(state string) (n int) {
	for _, c := range d.d.Checks {
		if c.State == state {
			n++
		}
	}
	return n
}

func (d *doctor) exit() int {
	switch {
	case d.count(checkFail) > 0 && d.count(checkFixed) > 0, d.count(checkFail) == 0 && d.count(checkSkip) > 0:
		return exitPartial
	case d.count(checkFail) > 0:
		return exitFailure
	}
	return exitOK
}

func (d *doctor) print() error {
	for _, c := range d.d.Checks {
		fmt.Fprintf(d.a.Stdout, "%-5s  %-11s  %s\n", c.State, c.Name, oneLine(c.Detail, 300))
		if c.Hint != "" {
			fmt.Fprintf(d.a.Stdout, "%20s %s\n", "", oneLine(c.Hint, 300))
		}
	}
	if b := d.d.Before; b != nil {
		fmt.Fprintf(d.a.Stdout, "\n%s\n", pluralOf(b.Entries, "entry", "entries"))
		views, old := b.Views, b.Views
		if d.d.After != nil {
			fmt.Fprintf(d.a.Stdout, "%s after\n", pluralOf(d.d.After.Entries, "entry", "entries"))
			views = d.d.After.Views
		}
		if err := d.a.printViews(old, views); err != nil {
			return err
		}
	}
	if n := d.count(checkFail); n > 0 && !d.fix {
		d.a.say("%s; tally doctor --fix mends what can be mended safely", pluralOf(n, "check fails", "checks fail"))
	}
	return nil
}

func (d *doctor) run(ctx context.Context) {
	d.program()
	d.clients()
	if !d.h.exists() {
		d.add("replica", checkSkip, "start one with tally up, or look at another with TALLY_HOME=DIR", "there is no replica in %s", d.h.Data)
		return
	}
	d.folders()
	d.keys()
	d.disk()
	c := d.owner(ctx)
	if c == nil {
		return
	}
	defer c.Close()
	d.versions(c)
	look := ops[server.Health]("health", nil)
	health, err := look(ctx, c)
	if err != nil {
		d.add("owner", checkFail, hintOf(err), "it does not say how it is: %s", messageOf(err))
		return
	}
	d.d.Before = &mainCounts{health.Entries, health.Views}
	d.log(ctx, c)
	if h, err := look(ctx, c); err == nil { // reading it through may have found some
		d.damage(&h)
	}
	d.continuity(&health)
	d.aside(&health)
	d.clock(&health)
	d.peers(&health)
	d.port(ctx, &health)
	d.mail(ctx, c)
	d.former()
	if d.fix {
		if health, err := look(ctx, c); err == nil {
			d.d.After = &mainCounts{health.Entries, health.Views}
		}
	}
}

func messageOf(err error) string { return asError(err).Message }
func hintOf(err error) string    { return asError(err).Hint }

func (d *doctor) program() {
	exe, err := os.Executable()
	if err != nil {
		exe = "unknown"
	}
	d.add("program", checkOK, "", "tally %s, %s", programVersion().Version, exe)
}

// versions tells when the owner is another program than this one.
func (d *doctor) versions(c *server.Client) {
	h := c.Hello()
	if own := programVersion().Version; h.Version != own {
		d.add("version", checkWarn, "tally stop; the next call starts this version", "the replica runs %s, this is %s", h.Version, own)
		return
	}
	d.add("version", checkOK, "", "the replica runs the same version, as pid %d", h.PID)
}

// owner reaches the owner process and starts one when there is none, as every
// verb does. On a disk too full to open the store, --fix drops the ballast.
func (d *doctor) owner(ctx context.Context) *server.Client {
	c, err := d.a.connect(ctx)
	var e *server.Error
	if err != nil && d.fix && errors.As(asError(err), &e) && e.Code == server.CodeNoSpace {
		n, drop := dropBallast(d.h)
		switch {
		case drop != nil:
			d.add("ballast", checkFail, "delete "+d.h.ballastFile(), "it cannot be dropped: %v", drop)
		case n == 0:
			d.add("ballast", checkFail, "free some space on the disk of "+d.h.Data, "there is none to drop")
		default:
			d.add("ballast", checkFixed, "free some space soon; the next start with plenty of room makes a new one", "dropped, %d MiB are free again", n>>20)
			d.diskAgain()
			c, err = d.a.connect(ctx)
		}
	}
	if err != nil {
		hint := hintOf(err)
		if asError(err).Code == server.CodeNoSpace && !d.fix {
			hint = "free some space, or run tally doctor --fix, which drops the ballast file"
		}
		d.add("store", checkFail, hint, "%s", messageOf(err))
		for _, name := range []string{"log", "views", "peers"} {
			d.add(name, checkSkip, "", "the replica does not run")
		}
		return nil
	}
	d.add("store", checkOK, "", "it opens, and the socket answers")
	return c
}

func (d *doctor) log(ctx context.Context, c *server.Client) {
	verify := long[server.Verified](d.a, "verify")
	v, err := verify(ctx, c)
	if err != nil {
		d.add("log", checkFail, hintOf(err), "it cannot be read through: %s", messageOf(err))
		return
	}
	if v.InLog > 0 {
		d.add("log", checkFail, "tally log verify lists them; damaged entries are asked of peers by themselves, anything else needs a backup or a fresh home that joins again",
			"%s of %s, the first: %s", foundText(v.InLog, v.More), pluralOf(v.Entries, "entry", "entries"), v.Findings[0])
	} else {
		d.add("log", checkOK, "", "%s and %s verify", pluralOf(v.Entries, "entry", "entries"), plural(v.Heads, "head"))
	}
	if len(v.InViews) == 0 {
		d.add("views", checkOK, "", "%s with %s add up", plural(len(v.Views), "view"), plural(v.Rows, "row"))
		return
	}
	if d.fix {
		r, err := long[server.Rebuilt](d.a, "rebuild")(ctx, c)
		if err == nil {
			v, err = verify(ctx, c)
		}
		if err == nil && len(v.InViews) == 0 {
			d.add("views", checkFixed, "", "folded anew from %s", pluralOf(r.Entries, "entry", "entries"))
			return
		}
	}
	d.add("views", checkFail, "tally doctor --fix folds them anew from the log", "these do not add up: %s", strings.Join(v.InViews, ", "))
}
