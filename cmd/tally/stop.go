package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the replica of this machine",
		Long: `Stop the replica of this machine and wait until it has ended. The next verb, or
the next client, starts it again. When none runs this is no error.`,
		Example: "  tally stop\n  TALLY_HOME=/tmp/b tally stop --json",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.home()
			if err != nil {
				return err
			}
			stopped, err := stopOwner(cmd.Context(), h)
			if err != nil {
				return err
			}
			return a.tell(map[string]bool{"stopped": stopped}, func() error {
				if stopped {
					fmt.Fprintln(a.Stdout, "stopped")
				} else {
					a.say("no replica is running here")
				}
				return nil
			})
		},
	}
}
