package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newQuarantine(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "quarantine",
		Short: "List entries that are kept and passed on, but are in no view, and why",
		Long: `List what is set aside. Held entries wait: for their time, when they are stamped too
far ahead of this machine's clock, or for their device's admission. Quarantined
ones cannot be folded by this version; a newer one may. Neither stops any other.`,
		Example: "  tally quarantine\n  tally quarantine --json | jq '.entries[].reason'",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			var list server.AsideList
			if err := c.Ops(cmd.Context(), "aside", struct{}{}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			if len(list.Entries) == 0 {
				fmt.Fprintln(a.Stdout, "nothing is held or quarantined")
				return nil
			}
			var rows [][]string
			for _, e := range list.Entries {
				lead, release := "", ""
				if e.LeadMS > 0 {
					lead = (time.Duration(e.LeadMS) * time.Millisecond).Round(time.Second).String()
				}
				if e.Release != "" {
					release = shortTime(e.Release)
				}
				rows = append(rows, []string{e.State, e.ID, oneLine(e.Kind, 32), oneLine(e.Origin, 40), fmt.Sprint(e.Seq), lead, release, oneLine(e.Reason, 200)})
			}
			if list.More {
				a.say("only the first %d are shown", len(list.Entries))
			}
			return a.table([]string{"STATE", "ENTRY", "KIND", "REPLICA", "SEQ", "AHEAD", "RELEASED", "REASON"}, rows)
		},
	}
}
