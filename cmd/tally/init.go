package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/internal/jsonc"
	"tallystick/internal/linediff"
	"tallystick/server"
)

type initFlags struct {
	clients         []string
	dryRun, user    bool
	project         string
	same, noConfigs bool
	noHooks         bool
}

func newInit(a *app) *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Wire the clients of this machine: instructions, MCP servers and hooks",
		Long: `Write the block of rules into the file that each client reads, the server tally
into its list of MCP servers and, where it has hooks for the start of a session
(Claude Code), tally hook session-start into its settings. In a repository the repository's files are used,
elsewhere the user's. What is there already is never overwritten: only the block
between tally's own markers is replaced, and a server that is listed stays as it
is. Every change is shown as a diff. Clients that are not in use get nothing.`,
		Example: `  tally init --dry-run
  tally init
  tally init --client claude,codex
  tally init --project app-of-mine`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if typed(cmd, "agent") {
				if len(f.clients) == 0 {
					f.clients = []string{a.agent}
				} else if len(f.clients) > 1 {
					return usage("agent", "give one --client with --agent", "--agent %s is given for %d clients", a.agent, len(f.clients))
				}
			} else {
				a.agent = ""
			}
			return a.init(cmd.Context(), f)
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.clients, "client", nil, "only these: "+strings.Join(clientNames(), ", ")+" (default: those in use here)")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	fs.BoolVar(&f.user, "user", false, "the user's own files, also inside a repository")
	fs.BoolVar(&f.noConfigs, "no-mcp", false, "no MCP servers")
	fs.BoolVar(&f.noHooks, "no-hook", false, "no hook at the start of a session")
	projectFlags(cmd, &f.project, &f.same)
	return cmd
}

// change is what becomes of one file.
type change struct {
	Path    string   `json:"path"`
	Clients []string `json:"clients"`
	Action  string   `json:"action"` // create, update, unchanged, kept, failed
	Note    string   `json:"note,omitempty"`
	Diff    string   `json:"diff,omitempty"`

	before, after []byte
}

// Actions of a change.
const (
	doCreate  = "create"
	doUpdate  = "update"
	unchanged = "unchanged"
	kept      = "kept"
	failed    = "failed"
)

type initResult struct {
	DryRun     bool                    `json:"dry_run"`
	Identities []server.IdentityAnswer `json:"identities"`
	Files      []*change               `json:"files"`
	Commands   []string                `json:"commands"` // for the user to run
	Restart    []string                `json:"restart"`
}

func (a *app) init(ctx context.Context, f initFlags) error {
	p, err := a.place()
	if err != nil {
		return err
	}
	if f.user {
		p.top = ""
	}
	if p.top == "" && (f.project != "" || f.same) {
		return usage("project", "go into the repository, and leave --user out", "a project is named, but this is not in a repository")
	}
	var list []*client
	for _, name := range f.clients {
		c, err := clientByName(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		list = append(list, c)
	}
	if len(f.clients) == 0 {
		for i := range clients {
			if clients[i].used(p) {
				list = append(list, &clients[i])
			}
		}
	}
	if len(list) == 0 {
		return usage("client", "name it with --client: "+strings.Join(clientNames(), ", "), "no client is in use here")
	}
	for _, c := range list {
		p.list = append(p.list, c.name)
	}
	r := initResult{DryRun: f.dryRun, Identities: []server.IdentityAnswer{}, Files: []*change{}, Commands: []string{}, Restart: []string{}}
	names := map[*client]string{}
	var gone []string
	err = a.withOwner(ctx, func(con *server.Client) error {
		for _, c := range list {
			id, err := a.mint(ctx, con, p, c, f)
			if err != nil {
				return err
			}
			r.Identities = append(r.Identities, id)
			names[c], gone = id.Identity, id.FormerHosts
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Files = planRules(p, list, names, gone)
	if !f.noConfigs {
		for _, c := range list {
			s := a.serverFor(c, names[c])
			if path := c.config(p); path != "" {
				r.Files = append(r.Files, planConfig(c, path, s))
			} else {
				r.Commands = append(r.Commands, c.byHand(s))
			}
		}
	}
	if !f.noHooks {
		for _, c := range list {
			if c.hooks != nil {
				r.Files = append(r.Files, planHook(p, c, a.serverFor(c, names[c])))
			}
		}
	}
	bad := 0
	var touched []string
	for _, ch := range r.Files {
		ch.carryOut(p, f.dryRun)
		switch ch.Action {
		case failed:
			bad++
		case doCreate, doUpdate:
			touched = append(touched, ch.Clients...)
		}
	}
	for _, c := range list {
		if slices.Contains(touched, c.name) {
			r.Restart = append(r.Restart, c.title)
		}
	}
	if err := a.tellInit(&r); err != nil {
		return err
	}
	if bad > 0 {
		return quiet{exitPartial}
	}
	return nil
}

// mint settles a client's name. Outside a repository nothing is minted, unless
// the instructions name it already: that is worth knowing in a repository.
func (a *app) mint(ctx context.Context, con *server.Client, p place, c *client, f initFlags) (server.IdentityAnswer, error) {
	agent := c.name
	if a.agent != "" {
		agent = a.agent
	}
	dir := a.Dir
	if p.top == "" {
		dir = p.user
	}
	s, err := sessionWithin(agent, dir, "cli", rootPatient)
	if err != nil {
		return server.IdentityAnswer{}, err
	}
	if p.top == "" {
		s.Project, s.InRepo, s.Root, s.Remote = "", false, "", ""
	}
	q := server.IdentityRequest{Session: s, Project: f.project, SameProject: f.same, Spoken: c.spoken(p, con.Label(), agent)}
	q.Mint = !f.dryRun && (p.top != "" || slices.Contains(q.Spoken, con.Label()+"-"+agent))
	return con.Identity(ctx, q)
}

// serverFor is how a client is to start the adapter.
func (a *app) serverFor(c *client, _ string) mcpServer {
	command, lasting := selfCommand()
	if !lasting {
		command = "tally"
	}
	agent := c.name
	if a.agent != "" {
		agent = a.agent
	}
	s := mcpServer{Command: command, Args: []string{"mcp", "--agent", agent}}
	if h, err := a.home(); err == nil && h.root != "" {
		s.Env = map[string]string{envPrefix + "HOME": h.root}
	}
	return s
}

// cursorHead opens a rule of Cursor that is always read.
const cursorHead = "---\ndescription: the log shared with other agents\nalwaysApply: true\n---\n\n"

// planRules works out what becomes of the instruction files. Clients that
// read one file, perhaps by a link, share its block.
func planRules(p place, list []*client, names map[*client]string, gone []string) (out []*change) {
	type file struct {
		path    string
		clients []*client
	}
	var files []*file
	byReal := map[string]*file{}
	for _, c := range list {
		path := c.rules(p)
		if path == "" {
			continue
		}
		real := path
		if r, err := filepath.EvalSymlinks(path); err == nil {
			real = r
		}
		if byReal[real] == nil {
			byReal[real] = &file{path: path}
			files = append(files, byReal[real])
		}
		byReal[real].clients = append(byReal[real].clients, c)
	}
	for _, f := range files {
		ch := &change{Path: f.path}
		var who []string
		for _, c := range f.clients {
			ch.Clients = append(ch.Clients, c.name)
			if p.top != "" && !slices.Contains(who, names[c]) {
				who = append(who, names[c])
			}
		}
		slices.Sort(who)
		out = append(out, ch)
		text, exists, err := readOptional(f.path)
		if err != nil {
			ch.fail(err)
			continue
		}
		ch.before = text
		if !exists && strings.HasSuffix(f.path, ".mdc") {
			text = []byte(cursorHead)
			text = text[:len(text)-1] // putBlock sets the block off by an empty line itself
		}
		if ch.after, err = putBlock(text, who, gone...); err != nil {
			ch.fail(fmt.Errorf("%w; mend it by hand and run this again", err))
			continue
		}
		ch.settle(exists)
		if bytes.Contains(ch.before, []byte(palaceStart)) {
			ch.Note = "the block of MemPalace stays; take it out yourself once its hub is not used any more"
		}
	}
	return out
}

func planConfig(c *client, path string, s mcpServer) *change {
	ch := &change{Path: path, Clients: []string{c.name}}
	text, exists, err := readOptional(path)
	if err != nil {
		ch.fail(err)
		return ch
	}
	ch.before = text
	after, there, err := c.add(text, s)
	switch {
	case err != nil:
		ch.fail(fmt.Errorf("%w; add the server %s by hand", err, serverName))
	case there:
		ch.Action, ch.Note = kept, "it has a server "+serverName+" already"
	default:
		ch.after = after
		ch.settle(exists)
	}
	return ch
}

// hookWords are how the command of a hook ends, by which it is known again.
const hookWords = "hook session-start"

// hookPath is where settings list the hooks of a session's start.
var hookPath = []string{"hooks", "SessionStart"}

func isHook(item any) bool { return bytes.Contains(jsonc.Encode(item), []byte(hookWords)) }

// hasHook reports whether settings have the hook.
func hasHook(settings []byte) bool {
	n, err := jsonc.Parse(settings)
	if err != nil {
		return false
	}
	at := n.At(hookPath...)
	return at != nil && isHook(at.Value)
}

// planHook puts the command that tells an agent what waits for it behind the
// other commands of a session's start.
func planHook(p place, c *client, s mcpServer) *change {
	path := c.hooks(p)
	ch := &change{Path: path, Clients: []string{c.name}}
	text, exists, err := readOptional(path)
	if err != nil {
		ch.fail(err)
		return ch
	}
	if p.top != "" { // a client runs the hooks of both files
		own := p
		own.top = ""
		if b, _, err := readOptional(c.hooks(own)); err == nil && hasHook(b) {
			ch.Action, ch.Note = kept, "the user's own settings have the hook"
			return ch
		}
	}
	ch.before = text
	command := shellWord(s.Command) + " " + hookWords + " --agent " + s.Args[len(s.Args)-1]
	if home := s.Env[envPrefix+"HOME"]; home != "" {
		command += " --home " + shellWord(home)
	}
	item := map[string]any{"hooks": []any{map[string]any{"type": "command", "command": command}}}
	after, there, err := jsonc.Append(text, hookPath, item, isHook)
	switch {
	case err != nil:
		ch.fail(fmt.Errorf("%w; add the hook by hand: %s", err, command))
	case there:
		ch.Action, ch.Note = kept, "it has the hook already"
	default:
		ch.after = after
		ch.settle(exists)
	}
	return ch
}

// shellWord quotes a word of a command line that is more than a name.
func shellWord(s string) string {
	if !strings.ContainsAny(s, " \t'\"$`\\&|;<>()*?#~!{}[]") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (ch *change) fail(err error) { ch.Action, ch.Note = failed, err.Error() }

func (ch *change) settle(exists bool) {
	switch {
	case !exists:
		ch.Action = doCreate
	case bytes.Equal(ch.before, ch.after):
		ch.Action = unchanged
	default:
		ch.Action = doUpdate
	}
}

// carryOut shows a change and makes it.
func (ch *change) carryOut(p place, dryRun bool) {
	if ch.Action != doCreate && ch.Action != doUpdate {
		return
	}
	ch.Diff = linediff.Unified(shownPath(p, ch.Path), ch.before, ch.after, ch.Action == doCreate)
	if dryRun {
		return
	}
	if err := replaceFile(ch.Path, ch.after); err != nil {
		ch.fail(err)
	}
}

// shownPath is a path as people write it.
func shownPath(p place, path string) string {
	for _, base := range []struct{ dir, as string }{{p.top, ""}, {p.user, "~/"}} {
		if base.dir == "" {
			continue
		}
		if rel, err := filepath.Rel(base.dir, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return base.as + filepath.ToSlash(rel)
		}
	}
	return path
}

func (a *app) tellInit(r *initResult) error {
	if a.json {
		return a.printJSON(r)
	}
	p, _ := a.place()
	for _, ch := range r.Files {
		fmt.Fprint(a.Stdout, ch.Diff)
	}
	for _, id := range r.Identities {
		a.tellIdentity(id)
	}
	for _, ch := range r.Files {
		who, path, note := strings.Join(ch.Clients, ", "), shownPath(p, ch.Path), ""
		if ch.Note != "" {
			note = ": " + oneLine(ch.Note, 300)
		}
		did := map[string]string{doCreate: "created", doUpdate: "updated", unchanged: "up to date", kept: "left as it is", failed: "NOT CHANGED"}[ch.Action]
		if r.DryRun && (ch.Action == doCreate || ch.Action == doUpdate) {
			did = "would be " + did
		}
		a.say("%s (%s): %s%s", path, who, did, note)
	}
	for _, c := range r.Commands {
		a.say("run this yourself, the file is the client's own: %s", c)
	}
	switch {
	case r.DryRun:
		a.say("nothing was changed")
	case len(r.Restart) > 0:
		a.say("restart %s: a session that runs has read neither", strings.Join(r.Restart, ", "))
	}
	return nil
}
