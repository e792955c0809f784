package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newSearch(a *app) *cobra.Command {
	var f struct {
		kinds                             []string
		identity, category, after, before string
		limit                             int
	}
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search facts, turns, summaries and events",
		Long: `Search everything that this replica holds. Facts are searched in your namespace
and the shared one; --identity narrows to one identity, or widens to all.`,
		Example: `  tally search retry budget
  tally search --kind summary --kind event --after 2026-11-01 parser
  tally search --identity @me --json '"exact phrase"'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			in := args{"query": strings.Join(list, " ")}
			in.text("category", f.category).text("after", f.after).text("before", f.before)
			if len(f.kinds) > 0 {
				in["kinds"] = f.kinds
			}
			if cmd.Flags().Changed("identity") {
				in["agentIdentity"] = f.identity
			}
			if cmd.Flags().Changed("limit") {
				in["limit"] = f.limit
			}
			raw, err := a.call(cmd.Context(), "search", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				searchAbout
				Results []struct {
					ID        string   `json:"id"`
					Kind      string   `json:"kind"`
					Title     string   `json:"title"`
					Text      string   `json:"text"`
					Where     string   `json:"where"`
					Whose     []string `json:"identities"`
					Timestamp string   `json:"timestamp"`
					Why       string   `json:"why"`
				} `json:"results"`
			}) error {
				for _, h := range r.Results {
					fmt.Fprintf(a.Stdout, "%s  %s  %s  %s  %s\n", shortTime(h.Timestamp), oneLine(h.ID, 64), oneLine(h.Kind, 20),
						oneLine(strings.Join(h.Whose, ", "), 120), oneLine(h.Where, 80))
					if h.Title != "" {
						fmt.Fprintf(a.Stdout, "  %s\n", oneLine(h.Title, 200))
					}
					fmt.Fprintf(a.Stdout, "%s\n  (%s)\n", block(h.Text, "    "), oneLine(h.Why, 200))
				}
				a.saySearch(r.searchAbout)
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.kinds, "kind", nil, "only fact, turn, summary, event, ack or mail; may be repeated")
	fs.StringVar(&f.identity, "identity", "", "whose: @me, one identity, or all")
	fs.StringVar(&f.category, "category", "", "category of a summary or a fact, or type of an event")
	fs.StringVar(&f.after, "after", "", "not older than this time, RFC 3339 or a date")
	fs.StringVar(&f.before, "before", "", "older than this time")
	fs.IntVar(&f.limit, "limit", 0, "at most so many, 1..100 (default 10)")
	return cmd
}

func newSummariesSearch(a *app) *cobra.Command {
	var identity, category string
	var limit int
	cmd := &cobra.Command{
		Use:     "search QUERY",
		Short:   "Search summaries by words",
		Example: `  tally summaries search --identity @me --category bugfix parser`,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			in := args{"query": strings.Join(list, " ")}
			in.text("category", category)
			if cmd.Flags().Changed("identity") {
				in["agentIdentity"] = identity
			}
			if cmd.Flags().Changed("limit") {
				in["nResults"] = limit
			}
			raw, err := a.call(cmd.Context(), "query_summaries", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				searchAbout
				Results []struct {
					ID        string   `json:"id"`
					Title     string   `json:"title"`
					Summary   string   `json:"summary"`
					Category  string   `json:"category"`
					Timestamp string   `json:"timestamp"`
					Sources   []string `json:"sourceAgentIdentities"`
					Why       string   `json:"why"`
				} `json:"results"`
			}) error {
				for _, s := range r.Results {
					fmt.Fprintf(a.Stdout, "%s  %s  %s  %s\n  %s\n%s\n  (%s)\n", shortTime(s.Timestamp), oneLine(s.ID, 64), oneLine(s.Category, 20),
						oneLine(strings.Join(s.Sources, ", "), 120), oneLine(s.Title, -1), block(s.Summary, "    "), oneLine(s.Why, 200))
				}
				a.saySearch(r.searchAbout)
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&identity, "identity", "", "whose: @me, one identity, or all (default all)")
	fs.StringVar(&category, "category", "", "only this category")
	fs.IntVar(&limit, "limit", 0, "at most so many, 1..100 (default 10)")
	return cmd
}
