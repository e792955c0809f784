package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newSummaries(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "summaries",
		Short: "Add, read and search summaries of finished work",
		Example: `  tally summaries add --title "Mended the parser" --text "It dropped empty lines."
  tally summaries list --identity @me --limit 5`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newSummariesAdd(a), newSummariesList(a), newSummariesSearch(a))
	return cmd
}

func newSummariesAdd(a *app) *cobra.Command {
	var f struct {
		title, text, file, category, session, time string
		sources                                    []string
	}
	cmd := &cobra.Command{
		Use:   "add --title TITLE (--text TEXT | --file FILE)",
		Short: "Add a summary and print its id",
		Example: `  tally summaries add --title "Mended the parser" --text "It dropped empty lines." --category bugfix
  tally summaries add --title "Week 27" --file notes.md --source mac:claude:x --source mac:codex:x`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := f.text
			if f.file != "" {
				if cmd.Flags().Changed("text") {
					return usage("text", "give one of them", "--text and --file are both given")
				}
				var err error
				if text, err = a.readText("file", f.file, maxBodyRead); err != nil {
					return err
				}
			}
			in := args{}
			in.text("title", f.title).text("summary", text).text("category", f.category)
			in.text("sessionId", f.session).text("timestamp", f.time)
			if len(f.sources) > 0 {
				in["sourceAgentIdentities"] = f.sources
			}
			raw, err := a.call(cmd.Context(), "add_summary", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				ID string `json:"id"`
			}) error {
				_, err := fmt.Fprintln(a.Stdout, r.ID)
				return err
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.title, "title", "", "title, one line of at most 512 bytes (required)")
	fs.StringVar(&f.text, "text", "", "the summary, at most 64 KiB")
	fs.StringVar(&f.file, "file", "", "file with the summary; - is stdin")
	fs.StringVar(&f.category, "category", "", "bugfix, feature, refactoring, documentation, new-app, analysis or other")
	fs.StringArrayVar(&f.sources, "source", nil, "identity whose work it is; may be repeated (default: you)")
	fs.StringVar(&f.session, "session", "", "session the work was done in")
	fs.StringVar(&f.time, "time", "", "RFC 3339 time of the work (default: now)")
	return cmd
}

func newSummariesList(a *app) *cobra.Command {
	var identity, category string
	var limit, offset int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List summaries, newest first",
		Example: `  tally summaries list --identity @me --limit 5
  tally summaries list --identity mac:claude:x --category bugfix --json`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := args{}
			in.text("agentIdentity", identity).text("category", category)
			if cmd.Flags().Changed("identity") {
				in["agentIdentity"] = identity // blank is refused, not taken for everybody
			}
			if limit != 0 || cmd.Flags().Changed("limit") {
				in["limit"] = limit
			}
			if offset != 0 {
				in["offset"] = offset
			}
			raw, err := a.call(cmd.Context(), "get_all_summaries", in)
			if err != nil {
				return err
			}
			type page struct {
				Count      int    `json:"count"`
				Total      int    `json:"total"`
				Offset     int    `json:"offset"`
				Note       string `json:"note"`
				HasMore    bool   `json:"has_more"`
				NextOffset int    `json:"next_offset"`
				Summaries  []struct {
					ID        string   `json:"id"`
					Title     string   `json:"title"`
					Summary   string   `json:"summary"`
					Category  string   `json:"category"`
					Timestamp string   `json:"timestamp"`
					Sources   []string `json:"sourceAgentIdentities"`
				} `json:"summaries"`
			}
			return show(a, raw, func(p page) error {
				for _, s := range p.Summaries {
					fmt.Fprintf(a.Stdout, "%s  %s  %s  %s\n  %s\n%s\n", shortTime(s.Timestamp), oneLine(s.ID, 64), oneLine(s.Category, 20),
						oneLine(strings.Join(s.Sources, ", "), 120), oneLine(s.Title, -1), block(s.Summary, "    "))
				}
				if p.Note != "" {
					a.say("%s", p.Note)
				}
				next := p.NextOffset
				if next == 0 {
					next = p.Offset + p.Count
				}
				if next < p.Total {
					a.say("%d of %d; go on with --offset %d", p.Count, p.Total, next)
				} else if p.Count == 0 {
					a.say("no summary matches")
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&identity, "identity", "", "whose: @me, one identity, or all (default all)")
	fs.StringVar(&category, "category", "", "only this category")
	fs.IntVar(&limit, "limit", 0, "at most so many, 1..500 (default 50)")
	fs.IntVar(&offset, "offset", 0, "leave out the first so many")
	return cmd
}
