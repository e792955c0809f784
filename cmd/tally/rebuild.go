package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newRebuild(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "Fold every view anew from the log",
		Long: `Fold every view anew from the log, while the present ones go on being read, and
switch over at once. The same entries give the same bytes: the digests before and
after are printed. Exit code 7 says that one has changed, so that a view was wrong
before, or entries arrived meanwhile.`,
		Example: "  tally rebuild\n  tally rebuild --json | jq .same",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask(cmd.Context(), a, long[server.Rebuilt](a, "rebuild"))
			if err != nil {
				return err
			}
			err = a.tell(r, func() error {
				fmt.Fprintf(a.Stdout, "rebuilt %s from %s\n", plural(len(r.After), "view"), pluralOf(r.Entries, "entry", "entries"))
				return a.printViews(r.Before, r.After)
			})
			if err == nil && !r.Same {
				err = quiet{exitPartial}
			}
			return err
		},
	}
}

// printViews shows digests before and after, or only once.
func (a *app) printViews(before, after []server.LogView) error {
	old := map[string]server.LogView{}
	for _, v := range before {
		old[v.Name] = v
	}
	var rows [][]string
	for _, v := range after {
		state := "same"
		if o, ok := old[v.Name]; !ok || o != v {
			state = fmt.Sprintf("was %s, %s", plural(o.Rows, "row"), o.Digest)
		}
		rows = append(rows, []string{v.Name, fmt.Sprint(v.Rows), v.Digest, state})
	}
	return a.table([]string{"VIEW", "ROWS", "DIGEST", "BEFORE"}, rows)
}
