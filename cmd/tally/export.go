package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/internal/importers"
	"tallystick/server"
)

var (
	exportFormats = []string{"jsonl", "markdown"}
	exportKinds   = []string{server.RowFact, server.RowLink, server.RowAlias, server.RowSummary, server.RowTurn, server.RowCheckpoint}
)

func newExport(a *app) *cobra.Command {
	var format, out string
	var namespaces, kinds []string
	cmd := &cobra.Command{
		Use:   "export [--format jsonl|markdown] [--out FILE]",
		Short: "Write out everything that is remembered",
		Long: `Write out facts, links, aliases, summaries, turns and checkpoints. JSONL is
complete, retired facts included, and tally import tally reads it back, into this
mesh or another. Markdown is for people: what is live, by namespace. Events are
not part of it; tally events list --json gives those.`,
		Example: `  tally export --out memory.jsonl
  tally export --format markdown --agent-id __shared__`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(exportFormats, format) {
				e := usage("format", useAllowed, "--format is %q", format)
				e.Allowed = exportFormats
				return e
			}
			for _, k := range kinds {
				if !slices.Contains(exportKinds, k) {
					e := usage("kind", "use some of the allowed values", "there is no kind %q", k)
					e.Allowed = exportKinds
					return e
				}
			}
			q := server.MemoryExport{Namespaces: namespaces, Kinds: kinds}
			if out == "" && a.terminal(a.Stdout) {
				a.isTerminal = func(io.Writer) bool { return false } // the rows themselves show how far it is
			}
			write := a.exportJSONL
			if format == "markdown" {
				write = a.exportMarkdown
			}
			return a.writeOut(out, func(w io.Writer) error { return write(cmd.Context(), w, q) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&format, "format", "jsonl", "jsonl or markdown")
	fs.StringVar(&out, "out", "", "file to write (default: stdout)")
	fs.StringArrayVar(&namespaces, "agent-id", nil, "only this namespace; may be repeated")
	fs.StringArrayVar(&kinds, "kind", nil, "only this kind: fact, link, alias, summary, turn, checkpoint; may be repeated")
	return cmd
}

// writeOut writes to stdout, or to a file that is there whole or not at all.
func (a *app) writeOut(path string, fn func(io.Writer) error) error {
	if path == "" {
		w := bufio.NewWriter(a.Stdout)
		return errors.Join(fn(w), w.Flush())
	}
	path = a.abs(path)
	tmp, err := os.CreateTemp(filepath.Dir(path), ".export-*")
	if err != nil {
		return fileError("out", path, err)
	}
	defer os.Remove(tmp.Name())
	w := bufio.NewWriter(tmp)
	if err := errors.Join(fn(w), w.Flush(), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fileError("out", path, err)
	}
	return nil
}

// exported calls fn with each row of an export.
func (a *app) exported(ctx context.Context, q server.MemoryExport, fn func(raw json.RawMessage) error) (n int, err error) {
	if q.Session, err = a.session("export"); err != nil {
		return 0, err
	}
	return ask(ctx, a, func(ctx context.Context, c *server.Client) (n int, err error) {
		bar := a.countBar("exporting", -1)
		defer bar.Close()
		for {
			part, err := c.ExportMemory(ctx, q)
			if err != nil {
				return n, err
			}
			for _, raw := range part.Rows {
				if err := fn(raw); err != nil {
					return n, err
				}
				n++
			}
			bar.Add(len(part.Rows))
			if q.After = part.Next; !part.More {
				return n, nil
			}
		}
	})
}

func (a *app) exportJSONL(ctx context.Context, w io.Writer, q server.MemoryExport) error {
	if _, err := fmt.Fprintf(w, "{\"kind\":%q,\"version\":%d}\n", importers.ExportHeader, importers.ExportVersion); err != nil {
		return err
	}
	n, err := a.exported(ctx, q, func(raw json.RawMessage) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
	if err == nil {
		a.say("%s", plural(n, "record"))
	}
	return err
}

// exportMarkdown writes what is live, for people.
func (a *app) exportMarkdown(ctx context.Context, w io.Writer, q server.MemoryExport) error {
	facts, rest := map[string][]string{}, map[string][]string{}
	n := 0
	_, err := a.exported(ctx, q, func(raw json.RawMessage) error {
		var r server.MemoryRow
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if r.Retired != nil {
			return nil
		}
		n++
		switch r.Kind {
		case server.RowFact:
			text := r.Text
			if r.Pinned {
				text += " (pinned)"
			}
			if r.Confidence != "" {
				text += " (" + r.Confidence + ")"
			}
			facts[r.Namespace] = append(facts[r.Namespace], item(text))
		case server.RowLink:
			facts[r.Namespace] = append(facts[r.Namespace], item(r.From+" -> "+r.To))
		case server.RowAlias:
			facts[r.Namespace] = append(facts[r.Namespace], item(r.Term+" is also called "+strings.Join(r.Equivalents, ", ")))
		case server.RowSummary:
			rest["Summaries"] = append(rest["Summaries"], section(r.Title, r.Timestamp, append([]string{r.Category}, r.Identities...), r.Text))
		case server.RowTurn:
			rest["Turns"] = append(rest["Turns"], section("Session "+r.Session, r.Timestamp, r.Identities, "**Prompt:** "+r.Prompt+"\n\n**Response:** "+r.Response))
		case server.RowCheckpoint:
			rest["Checkpoints"] = append(rest["Checkpoints"], section(r.Namespace, &r.CreatedAt, []string{r.Branch, r.BaseCommit}, "```json\n"+r.State+"\n```"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Memory\n")
	names := make([]string, 0, len(facts))
	for ns := range facts {
		names = append(names, ns)
	}
	slices.Sort(names)
	for _, ns := range names {
		fmt.Fprintf(&b, "\n## %s\n\n%s", oneLine(ns, -1), strings.Join(facts[ns], ""))
	}
	for _, title := range []string{"Summaries", "Turns", "Checkpoints"} {
		if len(rest[title]) > 0 {
			fmt.Fprintf(&b, "\n## %s\n%s", title, strings.Join(rest[title], ""))
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	a.say("%s", plural(n, "record"))
	return nil
}

// item is a list item of one or more lines.
func item(text string) string {
	return "- " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

func section(title string, at *string, about []string, text string) string {
	about = slices.DeleteFunc(slices.Clone(about), func(s string) bool { return s == "" })
	if at != nil && *at != "" {
		about = append([]string{*at}, about...)
	}
	return fmt.Sprintf("\n### %s\n\n%s\n\n%s\n", oneLine(title, -1), oneLine(strings.Join(about, ", "), -1), strings.TrimRight(text, "\n"))
}
