package main

import (
	"time"

	"github.com/spf13/cobra"
)

func newEventsWait(a *app) *cobra.Command {
	var f eventFilter
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until an event matches; exit 5 when none came in time",
		Long: `Wait until an event matches and print what did. It returns at once when a
match is there already, so pass the next_cursor of the last page to go on. When
none comes in time, the exit code is 5.`,
		Example: `  tally events wait --to @me --timeout 5m
  tally events wait --type task.reply --correlation t1 --cursor "$CURSOR" --json`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := f.args(true)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("timeout") {
				if timeout < 0 {
					return usage("timeout", "give a time like 30s or 5m", "--timeout %v is negative", timeout)
				}
				in["timeout_ms"] = timeout.Milliseconds()
			}
			raw, err := a.call(cmd.Context(), "event_wait", in)
			if err != nil {
				return err
			}
			err = show(a, raw, func(p eventPage) error {
				for _, e := range p.Events {
					a.printEvent(e)
				}
				if p.TimedOut {
					a.say("no event matched in time; go on with --cursor %s", p.NextCursor)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return exitIf[eventPage](raw, func(p eventPage) bool { return p.TimedOut }, exitTimeout)
		},
	}
	f.flags(cmd.Flags(), true)
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait, at most 5m")
	return cmd
}
