package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newClock(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clock",
		Short: "Show this machine's clock, and what clocks too far ahead have stamped",
		Long: `Show this replica's clock, and the entries that are stamped further ahead of it than
the bound: who wrote them, how far ahead, and when their time comes. Until then
they are kept and passed on, but are in no listing; tally clock amend sets them
right.`,
		Example: "  tally clock\n  tally clock --json | jq '.future[].label'",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := ask(cmd.Context(), a, ops[server.ClockAnswer]("clock", nil))
			if err != nil {
				return err
			}
			return a.tell(ans, func() error { return a.printClock(&ans) })
		},
	}
	cmd.AddCommand(newClockAmend(a))
	return cmd
}

func (a *app) printClock(ans *server.ClockAnswer) error {
	fmt.Fprintf(a.Stdout, "wall   %s\nclock  %s\nbound  %s\n", ans.Wall, ans.HLC, milliseconds(ans.BoundMS))
	if ans.Outlier {
		fmt.Fprintf(a.Stdout, "\nthis machine's clock is the one that is wrong: most others are %s\nset it; until then this replica writes no claims, renewals and amends\n", aheadText(ans.OffsetMS))
	}
	if len(ans.Future) == 0 {
		fmt.Fprintln(a.Stdout, "\nnothing is stamped further ahead than that")
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return a.table(clockColumns, clockRows(ans.Future))
}

var clockColumns = []string{"REPLICA", "ORIGIN", "HELD", "UP TO", "AHEAD", "RELEASED", "ITS CLOCK"}

func clockRows(list []server.ClockLine) (rows [][]string) {
	for _, l := range list {
		its := "not heard of"
		switch {
		case l.Self:
			its = "this machine"
		case l.Heard:
			its = aheadText(l.OffsetMS)
		}
		rows = append(rows, []string{oneLine(l.Label, 40), l.Origin, fmt.Sprint(l.Held), fmt.Sprint(l.Last), milliseconds(l.LeadMS), shortTime(l.Release), its})
	}
	return rows
}

func milliseconds(n int64) string {
	return (time.Duration(n) * time.Millisecond).Round(time.Second).String()
}

func aheadText(ms int64) string {
	if ms < 0 {
		return milliseconds(-ms) + " behind"
	}
	return milliseconds(ms) + " ahead"
}

func newClockAmend(a *app) *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "amend ORIGIN|LABEL",
		Short: "Let what a wrong clock has stamped count as stamped now",
		Long: `Let every entry of a replica that is stamped further ahead than the bound count as
stamped at this command's time, on every replica. Of several amends the earliest
counts; none raises a stamp. Headers stay as they are: the entries' own stamps
are still shown. Set that machine's clock first and restart its replica: it then
goes on in a new incarnation, by the clock.`,
		Example: "  tally clock amend laptop --dry-run\n  tally clock amend laptop --yes",
		Args:    positional("ORIGIN|LABEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.amend(cmd.Context(), args[0], dry, yes)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be amended")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) amend(ctx context.Context, origin string, dry, yes bool) error {
	s, err := a.session("cli")
	if err != nil {
		return err
	}
	q := server.AmendRequest{Session: s, Origin: origin, OpID: server.NewOpID(), DryRun: true}
	if dry || !yes {
		plan, err := ask(ctx, a, ops[server.AmendAnswer]("amend", q))
		if err != nil {
			return err
		}
		if !dry || !a.json {
			if err := a.table(clockColumns, clockRows(plan.Lines)); err != nil {
				return err
			}
		}
		if dry {
			return a.tell(plan, func() error {
				fmt.Fprintf(a.Stdout, "would count as stamped %s\n", shortTime(plan.CountAs))
				return nil
			})
		}
		if err := a.confirm(fmt.Sprintf("let all that count as stamped %s, on every replica?", shortTime(plan.CountAs))); err != nil {
			return err
		}
	}
	q.DryRun = false
	ans, err := ask(ctx, a, ops[server.AmendAnswer]("amend", q))
	if err != nil {
		return err
	}
	return a.tell(ans, func() error {
		for _, l := range ans.Lines {
			fmt.Fprintf(a.Stdout, "amended %s up to seq %d\n", oneLine(l.Label, 40), l.Last)
		}
		return nil
	})
}
