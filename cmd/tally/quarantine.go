package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newQuarantine(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "quarantine",
		Short: "List entries that are kept and passed on, but are in no view, and why",
		Long: `List what is set aside. Held entries wait: for their time, when they are stamped too
far ahead of this machine's clock, or for their device's admission. Quarantined
ones cannot be folded by this version; a newer one may. Owed ones came without their
payload, which is asked of peers by hash. The bytes of damaged ones have changed on this
disk: they are asked of peers too, and put back. What lies beyond the cut of a machine
that was revoked or has left counts nowhere. None stops any other.`,
		Example: "  tally quarantine\n  tally quarantine --json | jq '.entries[].reason'",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ask(cmd.Context(), a, ops[server.AsideList]("aside", nil))
			if err != nil {
				return err
			}
			return a.tell(list, func() error { return a.printAside(&list) })
		},
	}
}

func (a *app) printAside(list *server.AsideList) error {
	if len(list.Entries) == 0 {
		fmt.Fprintln(a.Stdout, "nothing is held, quarantined or owed")
		return nil
	}
	var rows [][]string
	for _, e := range list.Entries {
		lead, release := "", ""
		if e.LeadMS > 0 {
			lead = milliseconds(e.LeadMS)
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
}
