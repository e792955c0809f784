package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newMembers(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the machines of the mesh, and those that are no members any more",
		Long: `List the devices of the mesh: members, by admission, then those that were revoked, have
left, or are suspended because who had admitted them was revoked. Entries of theirs
that lie beyond the cut are kept aside; tally quarantine lists them.`,
		Example: "  tally members\n  tally members --json | jq '.members[] | select(.standing == \"member\")'\n  tally members readmit laptop",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := ask(cmd.Context(), a, ops[server.MembersAnswer]("members", nil))
			if err != nil {
				return err
			}
			return a.tell(ans, func() error { return a.printMembers(ans) })
		},
	}
	cmd.AddCommand(newReadmit(a))
	return cmd
}

func (a *app) printMembers(ans server.MembersAnswer) error {
	var rows [][]string
	for _, m := range ans.Members {
		standing := m.Standing
		if m.Self {
			standing += " (this machine)"
		}
		if m.Flagged {
			standing += ", label taken: may not claim"
		}
		what := ""
		switch {
		case m.EndedAt != "":
			what = "at " + shortTime(m.EndedAt)
			if m.EndedBy != "" {
				what += " by " + oneLine(m.EndedBy, 40)
			}
			if m.Reason != "" {
				what += ": " + oneLine(m.Reason, 80)
			}
			if m.Beyond > 0 {
				what += fmt.Sprintf(" (%d beyond the cut)", m.Beyond)
			}
		case m.Admitted != "":
			what = "admitted " + shortTime(m.Admitted) + " by " + oneLine(m.By, 40)
		}
		rows = append(rows, []string{oneLine(m.Label, 40), m.Device[:12], standing, what})
	}
	if err := a.table([]string{"LABEL", "DEVICE", "STANDING", ""}, rows); err != nil {
		return err
	}
	if ans.Ended != "" {
		a.say("%s", oneLine(ans.Ended, 300))
	}
	return nil
}

func newReadmit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "readmit NAME|DEVICE",
		Short: "Admit a suspended machine again",
		Long: `Admit a machine again that is suspended, because the one that had admitted it was
revoked. What it has written counts again. A machine that was revoked or has left
joins as a new one instead, from another TALLY_HOME.`,
		Example: "  tally members readmit laptop",
		Args:    positional("NAME|DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.session("cli")
			if err != nil {
				return err
			}
			ans, err := ask(cmd.Context(), a, ops[server.DepartAnswer]("readmit", server.DepartRequest{Session: s, Name: args[0]}))
			if err != nil {
				return err
			}
			return a.tell(ans, func() error {
				fmt.Fprintf(a.Stdout, "%s is a member again\n", oneLine(ans.Device.Label, 40))
				return nil
			})
		},
	}
}

func newRevoke(a *app) *cobra.Command {
	var reason string
	var yes, dry bool
	cmd := &cobra.Command{
		Use:   "revoke NAME|DEVICE",
		Short: "Put another machine out of the mesh, as when it is lost or stolen",
		Long: `End the membership of another machine, on every replica that hears of it. What this
replica holds of it counts on; what it writes, or wrote and told nobody here, does
not, whoever passes it on. Its live claims end now. It is refused in every handshake,
and told why; the key of the gossip is turned. It cannot be taken back: the machine
joins as a new one, from another TALLY_HOME. Revoke where most of its log is: tally
status shows who is behind.`,
		Example: "  tally revoke laptop --reason \"left in a train\"\n  tally revoke laptop --dry-run",
		Args:    positional("NAME|DEVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revoke(cmd.Context(), args[0], reason, dry, yes)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record; it cannot be erased")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would come of it")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) revoke(ctx context.Context, name, reason string, dry, yes bool) error {
	s, err := a.session("cli")
	if err != nil {
		return err
	}
	q := server.DepartRequest{Session: s, Name: name, Reason: reason, OpID: server.NewOpID(), DryRun: true}
	if dry || !yes {
		plan, err := ask(ctx, a, ops[server.DepartAnswer]("revoke", q))
		if err != nil {
			return err
		}
		if dry {
			return a.tell(plan, func() error { return a.printDeparture(plan) })
		}
		if err := a.printPlan(plan); err != nil {
			return err
		}
		if err := a.confirm(fmt.Sprintf("put %s out of the mesh, for good?", oneLine(plan.Device.Label, 40))); err != nil {
			return err
		}
	}
	q.DryRun = false
	ans, err := ask(ctx, a, ops[server.DepartAnswer]("revoke", q))
	if err != nil {
		return err
	}
	return a.tell(ans, func() error {
		fmt.Fprintf(a.Stdout, "revoked %s\n", oneLine(ans.Device.Label, 40))
		for _, c := range ans.Claims {
			fmt.Fprintf(a.Stdout, "ended the claim of %s on %s\n", oneLine(c.Holder, 80), oneLine(c.Task, 80))
		}
		return nil
	})
}

// printDeparture shows what ends with a machine.
func (a *app) printDeparture(p server.DepartAnswer) error {
	for _, c := range p.Cuts {
		fmt.Fprintf(a.Stdout, "its log counts up to seq %d (%s)\n", c.Seq, c.Origin)
	}
	if len(p.Cuts) == 0 {
		fmt.Fprintln(a.Stdout, "nothing of it is here, so nothing of it counts")
	}
	for _, c := range p.Claims {
		fmt.Fprintf(a.Stdout, "the claim of %s on %s ends\n", oneLine(c.Holder, 80), oneLine(c.Task, 80))
	}
	return nil
}

// printPlan is printDeparture before a question: it is talk, not data.
func (a *app) printPlan(p server.DepartAnswer) error {
	var b strings.Builder
	talk := *a
	talk.Stdout = &b
	if err := talk.printDeparture(p); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		a.say("%s", strings.TrimSuffix(line, "\n"))
	}
	return nil
}

func newLeave(a *app) *cobra.Command {
	var yes bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Take this machine out of the mesh",
		Long: `End this machine's membership, for good. What it has written stays, everywhere; it
keeps its own copy, readable, and writes nothing any more. Its live claims end. The
others hear of it from this replica, so let it run until one has: tally leave says
who. To write again, join as a new machine from another TALLY_HOME.`,
		Example: "  tally leave\n  tally leave --yes --wait 1m",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 || wait > time.Minute {
				return usage("wait", "give a time up to 1m", "--wait %v is out of range", wait)
			}
			return a.leave(cmd.Context(), wait, yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for another machine to hear of it")
	return cmd
}

func (a *app) leave(ctx context.Context, wait time.Duration, yes bool) error {
	s, err := a.session("cli")
	if err != nil {
		return err
	}
	q := server.DepartRequest{Session: s, WaitMS: wait.Milliseconds(), DryRun: true}
	if !yes {
		plan, err := ask(ctx, a, ops[server.DepartAnswer]("leave", q))
		if err != nil {
			return err
		}
		if err := a.printPlan(plan); err != nil {
			return err
		}
		if err := a.confirm("take this machine out of the mesh, for good?"); err != nil {
			return err
		}
	}
	q.DryRun = false
	ans, err := ask(ctx, a, ops[server.DepartAnswer]("leave", q))
	if err != nil {
		return err
	}
	err = a.tell(ans, func() error {
		fmt.Fprintf(a.Stdout, "%s has left the mesh; it keeps its data and writes nothing any more\n", oneLine(ans.Device.Label, 40))
		for _, label := range ans.Heard {
			fmt.Fprintf(a.Stdout, "heard by %s\n", oneLine(label, 40))
		}
		return nil
	})
	if err == nil && len(ans.Heard) == 0 {
		a.say("no other machine has heard of it yet: leave this replica running until one is reachable (tally status)")
	}
	return err
}
