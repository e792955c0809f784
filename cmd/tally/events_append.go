package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// maxBodyRead is a little over what the server takes, so that its error, not
// ours, names the limit.
const maxBodyRead = 1 << 20

type appendResult struct {
	Event     event    `json:"event"`
	DurableOn []string `json:"durable_on"`
	NotYet    []string `json:"not_yet"`
	Replayed  bool     `json:"replayed"`
	Note      string   `json:"note"`
}

func newEventsAppend(a *app) *cobra.Command {
	var f struct {
		typ, stream, room, to, correlation, branch, commit, status string
		body, bodyFile, metadata, topic, expires, key              string
		artifacts                                                  []string
	}
	cmd := &cobra.Command{
		Use:   "append --type TYPE --stream STREAM --room ROOM",
		Short: "Append an event",
		Long: `Append an event and print its id. It is on disk here when the command returns;
which replicas hold it too is said on stderr, and in full with --json.`,
		Example: `  tally events append --type task.request --stream project/x --room delegation --to mac:claude:x --body "mend the parser"
  git diff | tally events append --type note --stream project/x --room patches --body-file -
  tally events append --type status --stream project/x --room status --to '*' --body done --json`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("to") && f.to == "" {
				return usage("to", "give an identity, * for everybody, or leave it out", "--to is empty")
			}
			in := args{}
			in.text("type", f.typ).text("stream", f.stream).text("room", f.room).text("to_agent", f.to)
			in.text("correlation_id", f.correlation).text("branch", f.branch).text("base_commit", f.commit)
			in.text("status", f.status).text("topic", f.topic).text("expires_at", f.expires).text("idempotency_key", f.key)
			body, err := a.body(cmd, f.body, f.bodyFile)
			if err != nil {
				return err
			}
			in.text("body", body)
			if f.metadata != "" {
				if !json.Valid([]byte(f.metadata)) {
					return usage("metadata", `give a JSON object, e.g. --metadata '{"pid": 1}'`, "--metadata is not JSON")
				}
				in["metadata"] = json.RawMessage(f.metadata)
			}
			if len(f.artifacts) > 0 {
				in["artifact_ids"] = f.artifacts
			}
			raw, err := a.call(cmd.Context(), "event_append", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r appendResult) error {
				fmt.Fprintln(a.Stdout, r.Event.ID)
				a.sayDurable(r.DurableOn, r.NotYet, r.Replayed)
				if r.Note != "" {
					a.say("%s", oneLine(r.Note, 300))
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.typ, "type", "", "event type, e.g. task.request, task.reply, status, note (required)")
	fs.StringVar(&f.stream, "stream", "", "stream, e.g. project/x (required)")
	fs.StringVar(&f.room, "room", "", "room, e.g. delegation, patches, reviews, status (required)")
	fs.StringVar(&f.to, "to", "", "recipient: an identity, or * for everybody")
	fs.StringVar(&f.correlation, "correlation", "", "correlation id: what the event belongs to")
	fs.StringVar(&f.branch, "branch", "", "branch the event is about")
	fs.StringVar(&f.commit, "base-commit", "", "commit the event builds on")
	fs.StringVar(&f.status, "status", "", "status, e.g. open or ready")
	fs.StringVar(&f.body, "body", "", "text of the event")
	fs.StringVar(&f.bodyFile, "body-file", "", "file with the text; - is stdin")
	fs.StringVar(&f.metadata, "metadata", "", "JSON object to keep with the event")
	fs.StringArrayVar(&f.artifacts, "artifact", nil, "id of an artifact that belongs to it; may be repeated")
	fs.StringVar(&f.topic, "topic", "", "topic within the room")
	fs.StringVar(&f.expires, "expires", "", "RFC 3339 time after which a task may not be claimed")
	fs.StringVar(&f.key, "key", "", "idempotency key: a repeat with it gets the first result")
	return cmd
}

// body is --body or the contents of --body-file, bytes as given.
func (a *app) body(cmd *cobra.Command, text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	if cmd.Flags().Changed("body") {
		return "", usage("body", "give one of them", "--body and --body-file are both given")
	}
	return a.readText("body-file", file, maxBodyRead)
}

func (a *app) sayDurable(on, notYet []string, replayed bool) {
	if replayed {
		a.say("already there: the first result of this key")
	}
	if len(on) > 0 {
		line := "on disk on " + strings.Join(on, ", ")
		if len(notYet) > 0 {
			line += "; not yet on " + strings.Join(notYet, ", ")
		}
		a.say("%s", line)
	}
}
