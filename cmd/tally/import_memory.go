package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"tallystick/internal/importers"
	"tallystick/server"
)

// memoryImport is the report of an import of memory.
type memoryImport struct {
	Source  string   `json:"source"`
	Paths   []string `json:"paths"`
	DryRun  bool     `json:"dry_run"`
	Files   int      `json:"files"`
	Lines   int      `json:"lines"`
	Skipped int      `json:"skipped"`
	server.MemoryCounts
}

// importKinds are the verbs of import that read memory.
var importKinds = []struct {
	source     importers.Source
	use, short string
	long       string
}{
	{importers.MCPMemory, "mcp-memory FILE", "Import the MCP reference memory server's JSONL",
		`Each observation becomes a fact that begins with the entity's name; each relation a
link, and a fact that says it.`},
	{importers.Claude, "claude [PATH...]", "Import Claude Code's memory files",
		`Without a path: CLAUDE.md and the auto memory below ~/.claude, and CLAUDE.md,
CLAUDE.local.md and .claude/CLAUDE.md here, as far as they are there. A topic file is one fact, a list
item or a paragraph of the others too. Indexes, @imports and blocks that other
tools keep there are left out.`},
	{importers.GrayMatter, "graymatter PATH", "Import GrayMatter's JSON export",
		`A file of graymatter export --format json, or its folder. Namespaces, confidence,
pins and times are kept; superseded facts are left out.`},
	{importers.Engram, "engram PATH", "Import engram's JSONL chunks or its JSON export",
		`A .engram folder, a chunk (gzip too) or an export. Observations become facts,
sessions with a summary become summaries, prompts become turns.`},
	{importers.Markdown, "markdown PATH", "Import a folder of Markdown notes",
		`Each list item and each paragraph becomes a fact, with the headings above it in
front. A block that changes later is a new fact.`},
	{importers.Tally, "tally FILE", "Import what tally export wrote",
		`Records that are here already, under their own id or the key they came with, are
left as they are. Retired facts come in as retired ones, except where a fact of
that text is live here.`},
}

func newImportMemory(a *app) []*cobra.Command {
	var out []*cobra.Command
	for _, k := range importKinds {
		var ns namespaceFlags
		var dry bool
		cmd := &cobra.Command{
			Use: k.use, Short: k.short,
			Long: k.long + `

Importing again adds nothing, on any machine of the mesh. What cannot be read is
listed with file, line and reason and the rest goes in; the exit code is then 7.`,
			Example: "  tally import " + k.use + " --dry-run",
			Args:    cobra.ArbitraryArgs,
			RunE: func(cmd *cobra.Command, paths []string) error {
				if len(paths) == 0 && k.source == importers.Claude {
					if paths = a.claudeFiles(); len(paths) == 0 {
						return &server.Error{Code: server.CodeNotFound, Field: "PATH", Message: "there is no CLAUDE.md here, and no memory of Claude Code below the home directory",
							Hint: "go to the project, or give the path"}
					}
				}
				if len(paths) == 0 {
					return usage("PATH", "usage: "+cmd.UseLine(), "PATH is missing")
				}
				in := args{}
				if err := ns.set(cmd, in); err != nil {
					return err
				}
				namespace, _ := in["agent_id"].(string)
				res, err := a.importMemory(cmd.Context(), k.source, paths, namespace, dry)
				if err != nil {
					return err
				}
				err = a.tell(res, func() error {
					a.printMemoryImport(res)
					return nil
				})
				if err == nil && len(res.Errors) > 0 {
					return quiet{exitPartial}
				}
				return err
			},
		}
		ns.add(cmd)
		cmd.Flags().Lookup("agent-id").Usage = "namespace for facts whose source names none (default: your own)"
		cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be stored, and store nothing")
		out = append(out, cmd)
	}
	return out
}

// claudeFiles are the memory files that Claude Code reads for this directory, as
// far as there are any.
func (a *app) claudeFiles() []string {
	var found []string
	if home := a.Getenv("HOME"); home != "" {
		dir := filepath.Join(home, ".claude")
		if c := a.Getenv("CLAUDE_CONFIG_DIR"); c != "" {
			dir = c
		}
		if importers.Holds(importers.Claude, dir) {
			found = append(found, dir)
		}
	}
	for _, name := range []string{"CLAUDE.md", "CLAUDE.local.md", filepath.Join(".claude", "CLAUDE.md")} {
		if path := filepath.Join(a.Dir, name); isFile(path) {
			found = append(found, path)
		}
	}
	return found
}

func (a *app) importMemory(ctx context.Context, source importers.Source, paths []string, namespace string, dry bool) (*memoryImport, error) {
	s, err := a.session("import")
	if err != nil {
		return nil, err
	}
	res := &memoryImport{Source: string(source), Paths: paths, DryRun: dry}
	res.Errors = []server.RowError{}
	var rows []server.MemoryRow
	for _, p := range paths {
		read, err := importers.Read(source, a.abs(p), namespace)
		var path *fs.PathError
		if errors.As(err, &path) {
			return nil, fileError("PATH", p, err)
		}
		if err != nil {
			return nil, err
		}
		res.Files += read.Files
		res.Lines += read.Lines
		res.Skipped += read.Skipped
		res.Errors = append(res.Errors, read.Errors...)
		rows = append(rows, read.Rows...)
	}
	err = importChunks(ctx, a, server.MemoryChunks(rows), func(c *server.Client, chunk []server.MemoryRow) error {
		counts, err := c.ImportMemory(ctx, server.MemoryImport{Session: s, Rows: chunk, DryRun: dry})
		res.Add(counts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (a *app) printMemoryImport(r *memoryImport) {
	did := "stored"
	if r.DryRun {
		did = "would be stored"
	}
	fmt.Fprintf(a.Stdout, "%s, %s; %s: %s, %s, %s, %s, %s, %s\n", plural(r.Files, "file"), plural(r.Lines, "line"), did,
		plural(r.Facts, "fact"), plural(r.Links, "link"), pluralOf(r.Aliases, "alias", "aliases"), pluralOf(r.Summaries, "summary", "summaries"),
		plural(r.Turns, "turn"), plural(r.Checkpoints, "checkpoint"))
	for _, n := range []struct {
		what string
		n    int
	}{
		{"pinned", r.Pins}, {"of the facts, retired ones", r.Retired}, {"already present", r.AlreadyPresent}, {"changed since, and left as they were", r.ChangedIgnored},
		{"left out on purpose", r.Skipped}, {"retired, left out", r.SkippedRetired},
	} {
		if n.n > 0 {
			fmt.Fprintf(a.Stdout, "%s: %d\n", n.what, n.n)
		}
	}
	if r.Secrets > 0 {
		a.say("%s likely a secret; what is stored is synced to every machine", pluralOf(r.Secrets, "record holds", "records hold"))
	}
	for i, e := range r.Errors {
		if i == maxShownErrors {
			a.say("... and %d more; --json lists all", len(r.Errors)-i)
			break
		}
		where := oneLine(e.File, 120)
		if e.Line > 0 {
			where += fmt.Sprintf(" line %d", e.Line)
		}
		if e.ID != "" {
			where += " (" + oneLine(e.ID, 80) + ")"
		}
		a.say("%s: %s", where, oneLine(e.Reason, 300))
	}
}
