package main

import (
	"github.com/spf13/cobra"
)

func newImport(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "import",
		Short:   "Import work and memory from other tools",
		Example: "  tally import beads .beads/issues.jsonl\n  tally import claude --dry-run\n  tally import markdown notes",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newImportBeads(a))
	cmd.AddCommand(newImportMemory(a)...)
	return cmd
}
