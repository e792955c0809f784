package main

import (
	"github.com/spf13/cobra"
)

func newImport(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "import",
		Short:   "Import work from other tools",
		Example: "  tally import beads .beads/issues.jsonl",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newImportBeads(a))
	return cmd
}
