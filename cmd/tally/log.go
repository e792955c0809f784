package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tallystick/oplog"
	"tallystick/server"
)

func newLog(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "log",
		Short:   "Look into the log itself: show, verify, export, import",
		Example: "  tally log show --limit 20\n  tally log verify\n  tally log export desk.tlog",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newLogShow(a), newLogVerify(a), newLogExport(a), newLogImport(a))
	return cmd
}

func newLogShow(a *app) *cobra.Command {
	var origin, since string
	var limit int
	cmd := &cobra.Command{
		Use:   "show [ID]",
		Short: "Show entries as they stand in the log",
		Long: `Show one entry by the id of any listing or by its hash, with what its payload
says; or the newest entries of one replica, or those stamped since a time.`,
		Example: "  tally log show evt_20261130T222400_6a6edd9fc9cc\n  tally log show --origin desk --limit 20\n  tally log show --since 2h",
		Args:    atMost(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			q := server.ShowRequest{Origin: origin, Limit: limit}
			if len(words) == 1 {
				q.ID, q.Body = words[0], true
			}
			if q.ID != "" && (origin != "" || since != "") || origin != "" && since != "" {
				return usage("", "give an ID, --origin or --since", "one of them at a time")
			}
			if since != "" {
				t, err := sinceTime(since, time.Now())
				if err != nil {
					return err
				}
				q.SinceMillis = t.UnixMilli()
			}
			page, err := ask(cmd.Context(), a, ops[server.LogEntries]("show", q))
			if err != nil {
				return err
			}
			return a.tell(page, func() error {
				if q.ID != "" {
					return a.printEntry(page.Entries[0])
				}
				return a.printEntries(page)
			})
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "entries that this replica wrote: its label, or the start of an origin's id")
	cmd.Flags().StringVar(&since, "since", "", "entries stamped since: 90m, 2h, 3d, a date, or a time in RFC 3339")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most, the newest ones; up to 1000")
	return cmd
}

// sinceTime reads a time, or how long ago it was.
func sinceTime(s string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("since", "write 90m, 2h, 3d, 2026-01-31 or 2026-01-31T12:00:00Z", "%q is no time", s)
}

func (a *app) printEntry(e server.LogEntry) error {
	state := "folded, arrival " + strconv.FormatUint(e.Arrival, 10)
	if e.Arrival == 0 {
		state = "in no view; see tally quarantine"
	}
	payload := fmt.Sprintf("%d bytes", e.Bytes)
	if !e.Present {
		payload += ", erased or not here yet"
	}
	for _, row := range [][2]string{
		{"hash", e.Hash}, {"origin", oneLine(e.Label, 40) + " " + e.Origin}, {"seq", strconv.FormatUint(e.Seq, 10)}, {"previous", e.Prev},
		{"stamp", e.Stamp}, {"time", shortTime(e.Time)}, {"kind", oneLine(e.Kind, 40)}, {"author", oneLine(e.Author, 100)}, {"state", state},
		{"payload", payload}, {"op id", oneLine(e.OpID, 100)},
	} {
		fmt.Fprintf(a.Stdout, "%-9s %s\n", row[0], row[1])
	}
	if e.Body != nil {
		b, err := json.MarshalIndent(e.Body, "          ", " ")
		if err != nil {
			return fmt.Errorf("show the payload: %w", err)
		}
		fmt.Fprintf(a.Stdout, "%-9s %s\n", "body", strings.TrimSpace(block(string(b), "")))
	}
	return nil
}

func (a *app) printEntries(page server.LogEntries) error {
	var rows [][]string
	for _, e := range page.Entries {
		state := strconv.FormatUint(e.Arrival, 10)
		switch {
		case !e.Present:
			state += " erased"
		case e.Arrival == 0:
			state = "aside"
		}
		rows = append(rows, []string{shortTime(e.Time), oneLine(e.Label, 40), strconv.FormatUint(e.Seq, 10), oneLine(e.Kind, 32), e.Hash[:16],
			strconv.FormatUint(uint64(e.Bytes), 10), state, oneLine(e.Author, 60)})
	}
	if page.More {
		a.say("older entries are left out; --limit gives more")
	}
	return a.table([]string{"TIME", "REPLICA", "SEQ", "KIND", "HASH", "BYTES", "ARRIVAL", "AUTHOR"}, rows)
}

func newLogVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Check hashes, chains, signatures, the order of arrival and all views",
		Long: `Read the whole log and check the form and hash of every entry, the chain of every
branch, the signature of every head, the order of arrival, and that the rows of
every view add up to its digest. Nothing is changed. Exit code 1 says that
something is wrong; tally doctor says what to do about it.`,
		Example: "  tally log verify\n  tally log verify --json | jq .findings",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := ask(cmd.Context(), a, long[server.Verified](a, "verify"))
			if err != nil {
				return err
			}
			err = a.tell(v, func() error {
				fmt.Fprintf(a.Stdout, "%s, %s, %s, %s: %s\n", pluralOf(v.Entries, "entry", "entries"), plural(v.Payloads, "payload"), plural(v.Heads, "head"), plural(v.Rows, "row"), foundText(len(v.Findings), v.More))
				for _, f := range v.Findings {
					fmt.Fprintln(a.Stdout, oneLine(f, 300))
				}
				return nil
			})
			if err == nil && len(v.Findings) > 0 {
				err = quiet{exitFailure}
			}
			return err
		},
	}
}

func foundText(n int, more bool) string {
	switch {
	case n == 0:
		return "all is well"
	case more:
		return fmt.Sprintf("more than %d findings", n)
	case n == 1:
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", n)
}

func newLogExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE|-",
		Short: "Write the log to a file: every entry of every replica, signed, and all content",
		Long: `Write everything that this replica holds to one file: the entries of all replicas
with their signed heads, every branch, and all content, but nothing that is
erased. The file is not encrypted; tally backup makes one that is. Its format is in
docs/format-export.md. tally log import reads it on any replica of the same mesh.`,
		Example: "  tally log export today.pack\n  tally log export - | ssh desk tally log import -",
		Args:    positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			var n oplog.PackCounts
			err := a.withOwner(cmd.Context(), func(c *server.Client) error {
				return a.writeNew(words[0], func(w io.Writer) (err error) {
					bar := a.bytesBar("exporting", -1)
					defer bar.Close()
					n, err = c.ExportPack(cmd.Context(), false, io.MultiWriter(w, bar))
					return err
				})
			})
			if err != nil {
				return err
			}
			return a.wrotePack(words[0], n)
		},
	}
}

// wrotePack says what was written; on stderr when the file went to stdout.
func (a *app) wrotePack(path string, n oplog.PackCounts) error {
	line := fmt.Sprintf("%s in %s, %s of content, %s", pluralOf(n.Entries, "entry", "entries"), plural(n.Ranges, "range"), plural(n.Chunks, "chunk"), plural(n.Bytes, "byte"))
	switch {
	case path == "-":
		a.say("%s", line)
	case a.json:
		return a.printJSON(n)
	default:
		fmt.Fprintln(a.Stdout, line)
	}
	return nil
}

// writeNew writes a file that must not be there yet; it appears whole or not
// at all, readable by the user alone. "-" is stdout.
func (a *app) writeNew(path string, fn func(io.Writer) error) (err error) {
	if path == "-" {
		if a.terminal(a.Stdout) {
			return usage("FILE", "name a file, or send it on with a pipe", "this is no text for a terminal")
		}
		return fn(a.Stdout)
	}
	path = a.abs(path)
	if _, err := os.Lstat(path); err == nil {
		return &server.Error{Code: server.CodeConflict, Field: path, Message: path + " exists", Hint: "choose another name, or move it away"}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	err = fn(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Link(f.Name(), path) // refuses to replace
	}
	if errors.Is(err, os.ErrExist) {
		return &server.Error{Code: server.CodeConflict, Field: path, Message: path + " exists", Hint: "choose another name, or move it away"}
	}
	return err
}

func newLogImport(a *app) *cobra.Command {
	var anyMesh bool
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Take in the entries of an exported file",
		Long: `Take in what tally log export has written. Every range is verified as if a peer had
sent it, content by its hash, and erasures are obeyed. What is here already costs
nothing. A damaged file is refused; what came before the damage stays.`,
		Example: "  tally log import today.pack",
		Args:    positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			r, size := a.Stdin, int64(-1)
			if words[0] != "-" {
				f, err := os.Open(a.abs(words[0]))
				if err != nil {
					return fileError("FILE", words[0], err)
				}
				defer f.Close()
				r, size = f, fileSize(f)
			}
			n, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (server.PackImported, error) {
				bar := a.bytesBar("importing", size)
				defer bar.Close()
				return c.ImportPack(ctx, io.TeeReader(r, bar), anyMesh)
			})
			if err != nil {
				return err
			}
			return a.tell(n, func() error {
				fmt.Fprintf(a.Stdout, "%s added, %d here already; %s completed\n", pluralOf(n.Added, "entry", "entries"), n.Duplicates, plural(n.Contents, "content"))
				if n.Held > 0 {
					a.say("%s; see tally quarantine", pluralOf(n.Held, "entry waits", "entries wait"))
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&anyMesh, "any-mesh", false, "take a file of another mesh too; its entries are held until their devices are members")
	return cmd
}
