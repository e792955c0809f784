package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/query/memory"
)

func newMemory(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Add, search and curate facts",
		Example: `  tally memory add "the mesh port is 7717"
  tally memory search which port
  tally memory forget "the mesh port is 7717"`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newMemoryAdd(a), newMemorySearch(a), newMemoryReflect(a), newMemoryForget(a), newMemoryAlias(a))
	return cmd
}

// namespaceFlags are --agent-id and --shared, which names the namespace that
// everybody reads.
type namespaceFlags struct {
	id     string
	shared bool
}

func (n *namespaceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.id, "agent-id", "", "namespace, used as given (default: your own)")
	cmd.Flags().BoolVar(&n.shared, "shared", false, "the namespace that everybody reads, "+memory.Shared)
}

// set puts the namespace into a call when one was given, blank ones too: the
// server refuses those.
func (n *namespaceFlags) set(cmd *cobra.Command, in args) error {
	given := cmd.Flags().Changed("agent-id")
	switch {
	case n.shared && given:
		return usage("agent-id", "give one of them", "--agent-id and --shared are both given")
	case n.shared:
		in["agent_id"] = memory.Shared
	case given:
		in["agent_id"] = n.id
	}
	return nil
}

// words is the text of a command: its arguments, or a file.
func (a *app) words(list []string, file string) (string, error) {
	text := strings.Join(list, " ")
	if file == "" {
		return text, nil
	}
	if text != "" {
		return "", usage("file", "give one of them", "a text and --file are both given")
	}
	return a.readText("file", file, maxBodyRead)
}

// nearFact is a near-duplicate in an answer.
type nearFact struct {
	ID   string `json:"fact_id"`
	Text string `json:"text"`
}

func (a *app) sayNear(list []nearFact) {
	for _, n := range list {
		a.say("nearly the same: %s  %s", oneLine(n.ID, 64), oneLine(n.Text, 160))
	}
}

func newMemoryAdd(a *app) *cobra.Command {
	var ns namespaceFlags
	var confidence, file string
	cmd := &cobra.Command{
		Use:   "add TEXT",
		Short: "Remember a fact and print its id",
		Long: `Remember a fact for good, on every machine. Facts that say nearly the same are
named, so that they can be mended instead: tally memory reflect --action update.`,
		Example: `  tally memory add "the mesh port is 7717"
  tally memory add --shared --confidence verified "releases are cut on Fridays"
  tally memory add --file note.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			text, err := a.words(list, file)
			if err != nil {
				return err
			}
			in := args{"text": text}
			if cmd.Flags().Changed("confidence") {
				in["confidence"] = confidence
			}
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			raw, err := a.call(cmd.Context(), "memory_add", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				ID   string     `json:"fact_id"`
				Near []nearFact `json:"near_duplicates"`
				Note string     `json:"note"`
			}) error {
				a.sayNear(r.Near)
				if r.Note != "" {
					a.say("%s", r.Note)
				}
				_, err := fmt.Fprintln(a.Stdout, r.ID)
				return err
			})
		},
	}
	ns.add(cmd)
	cmd.Flags().StringVar(&confidence, "confidence", "", "verified, inferred or unverified (default: not said, ranks as inferred)")
	cmd.Flags().StringVar(&file, "file", "", "file with the fact; - is stdin")
	return cmd
}

// searchAbout is what every search says of itself.
type searchAbout struct {
	Count    int      `json:"count"`
	Fuzzy    bool     `json:"fuzzy"`
	Notes    []string `json:"notes"`
	Note     string   `json:"note"`
	Feedback string   `json:"feedback"`
	HasMore  bool     `json:"has_more"`
}

func (a *app) saySearch(r searchAbout) {
	said := false
	for _, n := range append(r.Notes, r.Feedback, r.Note) {
		if n != "" {
			a.say("%s", oneLine(n, 400))
			said = true
		}
	}
	if r.Count == 0 && !said {
		a.say("nothing found")
	} else if r.HasMore {
		a.say("there are more")
	}
}

func newMemorySearch(a *app) *cobra.Command {
	var ns namespaceFlags
	var identity, least string
	var top int
	var weight float64
	var superseded, explain bool
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search facts by words and identifiers",
		Long: `Search facts. Yours and the shared ones are searched unless --agent-id or
--identity says otherwise; --identity all is every namespace.`,
		Example: `  tally memory search which port
  tally memory search --identity all retry_budget
  tally memory search --agent-id mac:codex:x --explain --json upload`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			in := args{"query": strings.Join(list, " ")}
			given := cmd.Flags().Changed
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			if given("identity") {
				in["agentIdentity"] = identity
			}
			if given("top") {
				in["top_k"] = top
			}
			if given("min-confidence") {
				in["min_confidence"] = least
			}
			if given("confidence-weight") {
				in["confidence_weight"] = weight
			}
			if superseded {
				in["include_superseded"] = true
			}
			if explain {
				in["explain"] = true
			}
			raw, err := a.call(cmd.Context(), "memory_search", in)
			if err != nil {
				return err
			}
			type row struct {
				ID         string          `json:"id"`
				Namespace  string          `json:"agent_id"`
				Text       string          `json:"text"`
				Confidence string          `json:"confidence"`
				Pinned     bool            `json:"pinned"`
				CreatedAt  string          `json:"created_at"`
				Why        string          `json:"why"`
				Retired    json.RawMessage `json:"retired"`
				Provenance struct {
					ID        string `json:"fact_id"`
					Namespace string `json:"agent_id"`
					WrittenAt string `json:"written_at"`
				} `json:"provenance"`
			}
			return show(a, raw, func(r struct {
				searchAbout
				Namespaces []string `json:"namespaces"`
				Scope      string   `json:"scope"`
				Facts      []row    `json:"facts"`
				Explained  []row    `json:"explained"`
			}) error {
				for _, f := range append(r.Facts, r.Explained...) {
					if f.ID == "" {
						f.ID, f.Namespace, f.CreatedAt = f.Provenance.ID, f.Provenance.Namespace, f.Provenance.WrittenAt
					}
					marks := ""
					if f.Confidence != "" {
						marks += "  " + oneLine(f.Confidence, 20)
					}
					if f.Pinned {
						marks += "  pinned"
					}
					if len(f.Retired) > 0 {
						marks += "  superseded"
					}
					fmt.Fprintf(a.Stdout, "%s  %s  %s%s\n%s\n", shortTime(f.CreatedAt), oneLine(f.ID, 64), oneLine(f.Namespace, 120), marks, block(f.Text, "    "))
					if explain {
						fmt.Fprintf(a.Stdout, "  (%s)\n", oneLine(f.Why, 300))
					}
				}
				where := strings.Join(r.Namespaces, ", ")
				if r.Scope == "all" {
					where = "every namespace"
				}
				a.say("searched %s", oneLine(where, 300))
				a.saySearch(r.searchAbout)
				return nil
			})
		},
	}
	ns.add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&identity, "identity", "", "instead of a namespace: @me, one identity, or all")
	fs.IntVar(&top, "top", 0, "at most so many (default 8, at most 100)")
	fs.StringVar(&least, "min-confidence", "", "leave out what is less sure: verified, inferred or unverified")
	fs.Float64Var(&weight, "confidence-weight", 0, "0 to 0.5: how much sureness ranks")
	fs.BoolVar(&superseded, "superseded", false, "show replaced facts too")
	fs.BoolVar(&explain, "explain", false, "say why each fact matched")
	return cmd
}

// reflected is the answer of memory_reflect.
type reflected struct {
	Action  string     `json:"action"`
	FactID  string     `json:"fact_id"`
	ID      string     `json:"id"`
	Retired []string   `json:"retired"`
	Near    []nearFact `json:"near_duplicates"`
	Note    string     `json:"note"`
}

func (a *app) reflect(ctx context.Context, in args) error {
	raw, err := a.call(ctx, "memory_reflect", in)
	if err != nil {
		return err
	}
	return show(a, raw, func(r reflected) error {
		a.sayNear(r.Near)
		for _, id := range r.Retired {
			a.say("retired %s", oneLine(id, 64))
		}
		if r.Note != "" {
			a.say("%s", r.Note)
		}
		id := r.FactID
		if id == "" {
			id = r.ID
		}
		_, err := fmt.Fprintln(a.Stdout, id)
		return err
	})
}

func newMemoryReflect(a *app) *cobra.Command {
	var ns namespaceFlags
	var action, text, target, confidence string
	cmd := &cobra.Command{
		Use:   "reflect --action ACTION --agent-id NAMESPACE",
		Short: "Curate facts: add, update, forget, link, pin, unpin",
		Long: `Curate facts as the tool memory_reflect does. The namespace is never guessed:
give --agent-id or --shared. Texts are exact, as tally memory search shows them.`,
		Example: `  tally memory reflect --action update --shared --target "the port is 7717" --text "the port is 7718"
  tally memory reflect --action pin --agent-id mac:claude:x --target "releases are cut on Fridays"`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := args{}
			for flag, value := range map[string]string{"action": action, "text": text, "target": target, "confidence": confidence} {
				if cmd.Flags().Changed(flag) {
					in[flag] = value
				}
			}
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			return a.reflect(cmd.Context(), in)
		},
	}
	ns.add(cmd)
	cmd.Flags().Lookup("agent-id").Usage = "namespace, used as given (required, or --shared)"
	fs := cmd.Flags()
	fs.StringVar(&action, "action", "", strings.Join(memory.Actions(), ", ")+" (required)")
	fs.StringVar(&text, "text", "", "add: the fact; update: the new text; link: the source")
	fs.StringVar(&target, "target", "", "update, forget, pin, unpin: the exact text; link: the destination")
	fs.StringVar(&confidence, "confidence", "", "of add and update: verified, inferred or unverified")
	return cmd
}

func newMemoryForget(a *app) *cobra.Command {
	var ns namespaceFlags
	var file string
	cmd := &cobra.Command{
		Use:   "forget TEXT",
		Short: "Forget every copy of exactly this fact, on every machine",
		Long: `Forget every live copy of exactly this text in your namespace, or in the one
given. It leaves recall at once, on every machine, and stays in the log; tally
erase takes its bytes out.`,
		Example: `  tally memory forget "the mesh port is 7717"
  tally memory forget --shared --file old.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			text, err := a.words(list, file)
			if err != nil {
				return err
			}
			in := args{"action": "forget", "target": text}
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			if in["agent_id"] == nil {
				me, err := a.whoami(cmd.Context())
				if err != nil {
					return err
				}
				in["agent_id"] = me
			}
			return a.reflect(cmd.Context(), in)
		},
	}
	ns.add(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file with the exact text; - is stdin")
	return cmd
}

// whoami is the identity that this command line acts under.
func (a *app) whoami(ctx context.Context) (string, error) {
	raw, err := a.call(ctx, "whoami", args{})
	if err != nil {
		return "", err
	}
	var me struct {
		Identity string `json:"identity"`
	}
	if err := json.Unmarshal(raw, &me); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	return me.Identity, nil
}

func newMemoryAlias(a *app) *cobra.Command {
	var ns namespaceFlags
	cmd := &cobra.Command{
		Use:     "alias TERM WORD...",
		Short:   "Say which words mean the same, so that a search finds either",
		Example: `  tally memory alias pg postgres postgresql`,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			if len(list) < 2 {
				return usage("WORD", "usage: "+cmd.UseLine(), "a term and at least one word are wanted")
			}
			in := args{"term": list[0], "equivalents": list[1:]}
			if err := ns.set(cmd, in); err != nil {
				return err
			}
			raw, err := a.call(cmd.Context(), "memory_alias", in)
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
	ns.add(cmd)
	return cmd
}
