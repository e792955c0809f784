package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/server"
)

// maxShownErrors bounds the bad lines shown to a person; --json has all.
const maxShownErrors = 20

// importResult is the report of an import.
type importResult struct {
	File   string `json:"file"`
	DryRun bool   `json:"dry_run,omitempty"`
	Lines  int    `json:"lines"`
	server.ImportCounts
	SkippedTombstones int                 `json:"skipped_tombstones"`
	Errors            []server.BeadsError `json:"errors"`
	NotImported       server.NotImported  `json:"not_imported"`
}

func newImportBeads(a *app) *cobra.Command {
	var stream string
	var dry bool
	cmd := &cobra.Command{
		Use:   "beads FILE",
		Short: "Import a beads JSONL file, or stdin with -: requests, acks, replies and summaries",
		Long: `Import a beads JSONL file. Each record becomes a task request; a closed one also
an ack and, with a reason, a summary; a comment becomes a reply. Every part has a
key of its own in the whole mesh, so importing again, from another folder or on
another replica, adds nothing. A line that cannot be read, or a part of one, is
reported with its number and the rest goes in; the exit code is then 7. Run an
import that was cut short again: it goes on where it was, and counts what the
first run had stored as already present. Dependencies, notes, labels and
tombstones are not imported; how many there are is said.`,
		Example: `  tally import beads .beads/issues.jsonl --dry-run
  tally import beads work.jsonl --stream project/x --json
  bd export | tally import beads -`,
		Args: positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			res, err := a.importBeads(cmd.Context(), words[0], stream, dry)
			if err != nil {
				return err
			}
			err = a.tell(res, func() error {
				a.printImport(res)
				return nil
			})
			if err == nil && len(res.Errors) > 0 {
				return quiet{exitPartial}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be added and what is here already, and store nothing")
	cmd.Flags().StringVar(&stream, "stream", "", "stream of the requests (default: project/ and the project of the working directory, or project/beads outside of one)")
	return cmd
}

func (a *app) importBeads(ctx context.Context, file, stream string, dry bool) (*importResult, error) {
	s, err := a.session("import")
	if err != nil {
		return nil, err
	}
	beads, err := a.parseBeads(file)
	if err != nil {
		return nil, err
	}
	res := &importResult{File: file, DryRun: dry, Lines: beads.Lines, SkippedTombstones: beads.SkippedTombstones, Errors: beads.Errors, NotImported: beads.NotImported}
	err = importChunks(ctx, a, server.BeadsChunks(beads.Rows), func(c *server.Client, rows []server.BeadsRow) error {
		counts, err := c.ImportBeads(ctx, server.ImportRequest{Session: s, Stream: stream, Rows: rows, DryRun: dry})
		res.ImportCounts.Add(counts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// importChunks sends rows chunk by chunk and shows how far they are.
func importChunks[R any](ctx context.Context, a *app, chunks [][]R, send func(*server.Client, []R) error) error {
	all := 0
	for _, rows := range chunks {
		all += len(rows)
	}
	return a.withOwner(ctx, func(c *server.Client) error {
		bar := a.countBar("importing", all)
		defer bar.Close()
		done := 0
		for _, rows := range chunks {
			if err := send(c, rows); err != nil {
				return importError(err, done, all)
			}
			done += len(rows)
			bar.Add(len(rows))
		}
		return nil
	})
}

// importError says how far an import came; what went in stays and the rest
// goes in when the import is run again.
func importError(err error, done, of int) error {
	var e *server.Error
	if !errors.As(err, &e) || done == 0 {
		return err
	}
	told := *e
	told.Message = fmt.Sprintf("%s (after %d of %d records)", e.Message, done, of)
	told.Hint = strings.TrimPrefix(e.Hint+"; run the import again, it goes on where it was", "; ")
	return &told
}

// parseBeads reads a file, or stdin.
func (a *app) parseBeads(file string) (*server.BeadsFile, error) {
	if file == "-" {
		f, err := server.ParseBeads(a.Stdin)
		if err != nil {
			return nil, fileError("FILE", "stdin", err)
		}
		return f, nil
	}
	path := a.abs(file)
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError("FILE", path, err)
	}
	defer f.Close()
	beads, err := server.ParseBeads(f)
	if err != nil {
		return nil, fileError("FILE", path, err)
	}
	return beads, nil
}

func (a *app) printImport(r *importResult) {
	did := ""
	if r.DryRun {
		did = "would be added: "
	}
	fmt.Fprintf(a.Stdout, "%s: %s%s, %s, %s, %s\n", plural(r.Lines, "line"), did, plural(r.Requests, "request"), plural(r.Acks, "ack"),
		pluralOf(r.Replies, "reply", "replies"), pluralOf(r.Summaries, "summary", "summaries"))
	if r.AlreadyPresent > 0 {
		fmt.Fprintf(a.Stdout, "already present: %d\n", r.AlreadyPresent)
	}
	if r.ChangedIgnored > 0 {
		fmt.Fprintf(a.Stdout, "of these changed in the file since, and left as they were: %d\n", r.ChangedIgnored)
	}
	if left := leftOut(r); left != "" {
		fmt.Fprintf(a.Stdout, "not imported: %s\n", left)
	}
	if r.DryRun {
		a.say("nothing was stored")
	}
	for i, e := range r.Errors {
		if i == maxShownErrors {
			a.say("... and %d more; --json lists all", len(r.Errors)-i)
			break
		}
		id := ""
		if e.ID != "" {
			id = " (" + oneLine(e.ID, 80) + ")"
		}
		a.say("line %d%s: %s", e.Line, id, oneLine(e.Reason, 300))
	}
}

// leftOut says what a file holds that an import does not take.
func leftOut(r *importResult) string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{
		{r.NotImported.Dependencies, "dependency", "dependencies"}, {r.NotImported.Notes, "note", "notes"},
		{r.NotImported.Labels, "label", "labels"}, {r.SkippedTombstones, "tombstone", "tombstones"},
	} {
		if p.n > 0 {
			parts = append(parts, pluralOf(p.n, p.one, p.many))
		}
	}
	return strings.Join(parts, ", ")
}
