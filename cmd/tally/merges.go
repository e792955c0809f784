package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newMerges(a *app) *cobra.Command {
	var f struct {
		kind, cursor, undo string
		limit              int
	}
	cmd := &cobra.Command{
		Use:   "merges",
		Short: "Show what rules decided without asking, and undo it",
		Long: `List every automatic decision that discarded something: claims that lost, copies
of imported rows, facts and checkpoints that were overtaken elsewhere, labels that
two machines were given. Each is shown with both sides, the rule and the stamps.
--undo appends what restores the lost side; of a claim, the winner gives it up
first, then the loser takes it.`,
		Example: "  tally merges\n  tally merges --kind claim --json\n  tally merges --undo evt_20260704T101112_0123456789ab",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("undo") {
				return a.undoMerge(cmd, f.undo)
			}
			in := args{}
			in.text("kind", f.kind).text("cursor", f.cursor)
			if f.limit != 0 || cmd.Flags().Changed("limit") {
				in["limit"] = f.limit
			}
			raw, err := a.call(cmd.Context(), "merges_list", in)
			if err != nil {
				return err
			}
			type page struct {
				Merges []struct {
					ID    string    `json:"id"`
					Kind  string    `json:"kind"`
					About string    `json:"about"`
					Rule  string    `json:"rule"`
					Lost  mergeSide `json:"lost"`
					Kept  mergeSide `json:"kept"`
					Same  bool      `json:"same"`
					Grade string    `json:"grade"`
					Undo  string    `json:"undo"`
				} `json:"merges"`
				HasMore    bool   `json:"has_more"`
				NextCursor string `json:"next_cursor"`
			}
			return show(a, raw, func(p page) error {
				for _, m := range p.Merges {
					about := m.Rule
					if m.Grade != "" {
						about += ", " + m.Grade
					}
					if m.Same {
						about += ", both say the same"
					}
					fmt.Fprintf(a.Stdout, "%s  %s  %s  %s\n", oneLine(m.ID, 64), oneLine(m.Kind, 20), oneLine(m.About, 80), oneLine(about, 120))
					fmt.Fprintf(a.Stdout, "    lost  %s\n    kept  %s\n    undo  %s\n", m.Lost.line(), m.Kept.line(), oneLine(m.Undo, 200))
				}
				switch {
				case p.HasMore:
					a.say("there is more: --cursor %s", p.NextCursor)
				case len(p.Merges) == 0:
					a.say("no rule has discarded anything")
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.undo, "undo", "", "id of a lost side: append what restores it")
	fs.StringVar(&f.kind, "kind", "", "only claim, import, summary, turn, fact, checkpoint or label")
	fs.IntVar(&f.limit, "limit", 0, "at most so many, 1..500 (default 50)")
	fs.StringVar(&f.cursor, "cursor", "", "go on after a page: its next_cursor")
	return cmd
}

// mergeSide is one side of a merge as tools return it.
type mergeSide struct {
	ID     string `json:"id"`
	Author string `json:"author"`
	HLC    string `json:"hlc"`
	At     string `json:"at"`
	What   string `json:"what"`
}

func (s mergeSide) line() string {
	return oneLine(s.ID, 64) + "  " + oneLine(s.Author, 80) + "  " + oneLine(s.HLC, 64) + "  " + oneLine(s.What, 100)
}

func (a *app) undoMerge(cmd *cobra.Command, id string) error {
	raw, err := a.call(cmd.Context(), "merges_undo", args{"id": id})
	if err != nil {
		return err
	}
	return show(a, raw, func(r struct {
		What   string  `json:"what"`
		Events []event `json:"events"`
	}) error {
		for _, e := range r.Events {
			fmt.Fprintln(a.Stdout, e.ID)
		}
		a.say("%s", oneLine(r.What, 200))
		return nil
	})
}

// explainClaim says how the holder of a task was decided.
func (a *app) explainClaim(cmd *cobra.Command, id string) error {
	raw, err := a.call(cmd.Context(), "claim_why", args{"id": id})
	if err != nil {
		return err
	}
	return show(a, raw, func(r struct {
		Lines []string `json:"lines"`
	}) error {
		for _, line := range r.Lines {
			fmt.Fprintln(a.Stdout, oneLine(line, -1))
		}
		return nil
	})
}
