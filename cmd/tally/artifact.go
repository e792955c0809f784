package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

const maxArtifact = 64 << 20 // bytes

func newArtifact(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "artifact",
		Short: "Store and read patches, files and logs, up to 64 MiB each",
		Long: `An artifact is content too large for an event, kept byte for byte and known by
its SHA-256. It is synced like everything else: its entry first, its content as
the connection allows.`,
		Example: `  tally artifact put fix.patch
  git diff | tally artifact put --kind patch -
  tally artifact submit fix.patch --for evt_20260704T101112_0123456789ab --to desk:claude:x
  tally artifact get art_20260102T030405_0123456789ab > fix.patch
  tally artifact list`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newArtifactPut(a), newArtifactSubmit(a), newArtifactGet(a), newArtifactList(a))
	return cmd
}

// artifactRow is what is shown of an artifact.
type artifactRow struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	SHA256    string   `json:"sha256"`
	Size      int64    `json:"size_bytes"`
	CreatedBy string   `json:"created_by"`
	CreatedAt string   `json:"created_at"`
	Here      bool     `json:"content_here"`
	Have      int64    `json:"bytes_here"`
	Warnings  []string `json:"warnings"`
}

func (a *app) warn(list []string) {
	for _, w := range list {
		a.say("warning: %s", oneLine(w, 300))
	}
}

func newArtifactPut(a *app) *cobra.Command {
	var kind, metadata, key string
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Store a file, or stdin with -, and print its id",
		Long: `Store a file byte for byte and print the artifact's id. Warnings, as about a
patch without its last newline, are on stderr.`,
		Example: "  tally artifact put fix.patch\n  make 2>&1 | tally artifact put --kind log - --metadata '{\"target\": \"all\"}'",
		Args:    positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			s, err := a.session("cli")
			if err != nil {
				return err
			}
			src, err := a.openContent(words[0])
			if err != nil {
				return err
			}
			defer src.close()
			q := server.ArtifactPut{Session: s, Kind: kind, Size: src.size, Key: key}
			if q.Kind == "" {
				q.Kind = kindOf(words[0])
			}
			if metadata != "" {
				if !json.Valid([]byte(metadata)) {
					return usage("metadata", `give an object such as '{"key": "value"}'`, "--metadata is not JSON")
				}
				q.Metadata = json.RawMessage(metadata)
			}
			raw, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (json.RawMessage, error) {
				bar := a.bytesBar("storing", src.size)
				defer bar.Close()
				return c.PutArtifact(ctx, q, func() (io.Reader, error) {
					bar.Reset()
					r, err := src.open()
					return io.TeeReader(r, bar), err
				})
			})
			if err != nil {
				return err
			}
			type stored struct {
				Artifact artifactRow `json:"artifact"`
			}
			var out stored
			if err := json.Unmarshal(raw, &out); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			a.warn(out.Artifact.Warnings)
			return show(a, raw, func(r stored) error {
				_, err := fmt.Fprintln(a.Stdout, r.Artifact.ID)
				return err
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&kind, "kind", "", "patch, file, log, json or note (default: by the file's name, else file)")
	fs.StringVar(&metadata, "metadata", "", "a JSON object kept with it")
	fs.StringVar(&key, "key", "", "idempotency key: a repeat with it gets the first result")
	return cmd
}

func newArtifactGet(a *app) *cobra.Command {
	var out string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Write an artifact's content, exactly as it was stored",
		Long: `Write an artifact's content, exactly as it was stored: its SHA-256 is compared with
that of the entry, and said with --output. An entry arrives before its content:
--wait goes on asking until the content is here.`,
		Example: "  tally artifact get art_20260102T030405_0123456789ab | git apply\n  tally artifact get art_20260102T030405_0123456789ab --output fix.patch --wait 1m",
		Args:    positional("ID"),
		RunE: func(cmd *cobra.Command, words []string) error {
			s, err := a.session("cli")
			if err != nil {
				return err
			}
			raw, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (raw json.RawMessage, err error) {
				w, done := a.Stdout, func(bool) error { return nil }
				if out != "" {
					if w, done, err = a.newFile(out); err != nil {
						return nil, err
					}
				}
				bar := a.bytesBar("reading", -1)
				err = retryMissing(ctx, wait, func() (err error) {
					raw, err = c.GetArtifact(ctx, server.ArtifactGet{Session: s, ID: words[0]}, io.MultiWriter(w, bar))
					return err
				})
				bar.Close()
				if e := done(err == nil); err == nil {
					err = e
				}
				return raw, err
			})
			if err != nil {
				return err
			}
			var row artifactRow
			if err := json.Unmarshal(raw, &row); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			a.warn(row.Warnings)
			if out != "" && !a.json {
				a.say("sha256 %s, as it was stored by %s", oneLine(row.SHA256, 64), oneLine(row.CreatedBy, 120))
			}
			if a.json && out != "" {
				return a.printJSON(raw)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this file instead of stdout")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for content that is not here yet")
	return cmd
}

func newArtifactList(a *app) *cobra.Command {
	var limit, offset int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List artifacts, newest first",
		Example: "  tally artifact list --limit 5\n  tally artifact list --json",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.session("cli")
			if err != nil {
				return err
			}
			q := server.ArtifactQuery{Session: s, Limit: limit, Offset: offset}
			raw, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (json.RawMessage, error) { return c.Artifacts(ctx, q) })
			if err != nil {
				return err
			}
			type page struct {
				Artifacts  []artifactRow `json:"artifacts"`
				HasMore    bool          `json:"has_more"`
				NextOffset int           `json:"next_offset"`
			}
			return show(a, raw, func(p page) error {
				for _, r := range p.Artifacts {
					state := ""
					if !r.Here {
						state = fmt.Sprintf("  (%d of %d bytes here)", r.Have, r.Size)
					}
					fmt.Fprintf(a.Stdout, "%s  %s  %-5s  %10d  %s%s\n", shortTime(r.CreatedAt), oneLine(r.ID, 64), oneLine(r.Kind, 16), r.Size, oneLine(r.CreatedBy, 120), state)
				}
				switch {
				case p.HasMore:
					a.say("more; go on with --offset %d", p.NextOffset)
				case len(p.Artifacts) == 0:
					a.say("no artifacts")
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&limit, "limit", 0, "at most so many, 1..500 (default 50)")
	fs.IntVar(&offset, "offset", 0, "leave out the first so many")
	return cmd
}

// kindOf guesses what a file is by its name.
func kindOf(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".patch", ".diff":
		return "patch"
	case ".json":
		return "json"
	case ".log":
		return "log"
	}
	return "file"
}

// content is what is stored: a file, or stdin as read.
type content struct {
	size  int64
	open  func() (io.Reader, error) // from the beginning
	close func() error
}

func (a *app) openContent(path string) (*content, error) {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(a.Stdin, maxArtifact+1))
		if err != nil {
			return nil, fileError("FILE", path, err)
		}
		return &content{size: int64(len(b)), close: func() error { return nil }, open: func() (io.Reader, error) { return bytes.NewReader(b), nil }}, nil
	}
	path = a.abs(path)
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError("FILE", path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is no regular file; use - and a pipe")
	}
	if err != nil {
		f.Close()
		return nil, fileError("FILE", path, err)
	}
	return &content{size: info.Size(), close: f.Close, open: func() (io.Reader, error) {
		_, err := f.Seek(0, io.SeekStart)
		return f, err
	}}, nil
}

// newFile writes beside a file and puts the result in its place when all of it
// is there.
func (a *app) newFile(path string) (io.Writer, func(good bool) error, error) {
	path = a.abs(path)
	f, err := os.CreateTemp(filepath.Dir(path), ".tally-*")
	if err != nil {
		return nil, nil, fileError("output", path, err)
	}
	return f, func(good bool) error {
		err := f.Close()
		if good && err == nil {
			err = os.Rename(f.Name(), path)
		}
		if !good || err != nil {
			os.Remove(f.Name())
		}
		return err
	}, nil
}
