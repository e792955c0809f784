package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newRename(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rename LABEL",
		Short: "Give this machine another label in the mesh",
		Long: `Give the replica of this machine another label, for every replica, from now on. The
host part of its agents' identities changes with it: claims that they hold stay
theirs, what they wrote stays under the former name, and mail to a former name is
shown by tally status. Names in instruction files change with the next tally init.
A label that another machine has is refused. Of two machines that were given one
label, as in two partitions, the later may not claim until it is renamed. The way
back is another rename; tally merges lists all.`,
		Example: "  tally rename laptop\n  tally rename laptop --json",
		Args:    positional("LABEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ans, err := ask(cmd.Context(), a, ops[server.RenameAnswer]("rename", server.RenameRequest{Label: args[0], OpID: server.NewOpID()}))
			if err != nil {
				return err
			}
			return a.tell(ans, func() error { return a.tellRename(ans) })
		},
	}
}

func (a *app) tellRename(ans server.RenameAnswer) error {
	if !ans.Renamed {
		fmt.Fprintf(a.Stdout, "this machine is named %s already\n", ans.To)
		return nil
	}
	fmt.Fprintf(a.Stdout, "renamed %s to %s\n", ans.From, ans.To)
	if ans.Flagged {
		a.say("another machine has the label %s since earlier: this one may not claim; choose another", ans.To)
	}
	a.say("run tally init in each repository: instructions there name the former label")
	return nil
}
