package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

// maxPatchRead is a little over what the server takes in one call, so that its
// error, not ours, names the limit.
const maxPatchRead = 5 << 20

func newArtifactSubmit(a *app) *cobra.Command {
	var f struct{ task, stream, room, to, correlation, branch, commit, body, topic, metadata, key string }
	cmd := &cobra.Command{
		Use:   "submit FILE (--for TASK | --stream STREAM)",
		Short: "Hand in a patch: store it and append a patch.ready event that names it",
		Long: `Store a patch byte for byte and append a patch.ready event that names it, both or
neither. The event's id and the artifact's are printed, one a line, and the
SHA-256 on stderr. --for takes stream and correlation from the task. Whoever
waits for patch.ready reads it with tally artifact get ID, which compares the
hash. A patch of more than 4 MiB goes in with tally artifact put and
tally events append --type patch.ready --artifact ID.`,
		Example: `  git diff > fix.patch && tally artifact submit fix.patch --for evt_20260704T101112_0123456789ab --to desk:claude:x
  git diff | tally artifact submit - --stream project/x --to '*' --body "mends the parser"`,
		Args: positional("FILE"),
		RunE: func(cmd *cobra.Command, words []string) error {
			switch {
			case f.task != "" && (f.stream != "" || f.correlation != ""):
				return usage("for", "give one of them", "--for gives stream and correlation, and they are given too")
			case f.task == "" && f.stream == "":
				return usage("stream", "name it, or the task with --for", "--stream is missing")
			case cmd.Flags().Changed("to") && f.to == "":
				return usage("to", "give an identity, * for everybody, or leave it out", "--to is empty")
			case f.metadata != "" && !json.Valid([]byte(f.metadata)):
				return usage("metadata", `give an object such as '{"key": "value"}'`, "--metadata is not JSON")
			}
			content, err := a.readText("FILE", words[0], maxPatchRead)
			if err != nil {
				return err
			}
			if f.task != "" {
				if f.stream, f.correlation, err = a.taskOf(cmd.Context(), f.task); err != nil {
					return err
				}
			}
			in := args{"content": content}
			in.text("stream", f.stream).text("room", f.room).text("to_agent", f.to).text("correlation_id", f.correlation)
			in.text("branch", f.branch).text("base_commit", f.commit).text("body", f.body).text("topic", f.topic).text("idempotency_key", f.key)
			if f.metadata != "" {
				in["metadata"] = json.RawMessage(f.metadata)
			}
			raw, err := a.call(cmd.Context(), "patch_submit", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				appendResult
				Artifact artifactRow `json:"artifact"`
			}) error {
				fmt.Fprintln(a.Stdout, r.Event.ID)
				fmt.Fprintln(a.Stdout, r.Artifact.ID)
				a.warn(r.Artifact.Warnings)
				a.say("sha256 %s", oneLine(r.Artifact.SHA256, 64))
				a.sayDurable(r.DurableOn, r.NotYet, r.Replayed)
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.task, "for", "", "the task it is for: its request, a claim of it, or its correlation id")
	fs.StringVar(&f.stream, "stream", "", "stream, e.g. project/x")
	fs.StringVar(&f.room, "room", "", "room (default patches)")
	fs.StringVar(&f.to, "to", "", "recipient: an identity, or * for everybody")
	fs.StringVar(&f.correlation, "correlation", "", "correlation id: what the patch belongs to")
	fs.StringVar(&f.branch, "branch", "", "branch the patch is for")
	fs.StringVar(&f.commit, "base-commit", "", "commit the patch applies to")
	fs.StringVar(&f.body, "body", "", "text of the event")
	fs.StringVar(&f.topic, "topic", "", "topic within the room")
	fs.StringVar(&f.metadata, "metadata", "", "JSON object to keep with the event")
	fs.StringVar(&f.key, "key", "", "idempotency key: a repeat with it gets the first result")
	return cmd
}

// taskOf finds stream and correlation of the task that an id belongs to.
func (a *app) taskOf(ctx context.Context, id string) (stream, correlation string, err error) {
	raw, err := a.call(ctx, "claim_why", args{"id": id})
	if err != nil {
		return "", "", err
	}
	var r struct{ Task, Stream string }
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", "", fmt.Errorf("read the answer: %w", err)
	}
	return r.Stream, r.Task, nil
}

// retryMissing tries again while what is asked for is not here yet, for as
// long as wait says.
func retryMissing(ctx context.Context, wait time.Duration, try func() error) error {
	deadline := time.Now().Add(wait)
	for {
		err := try()
		var e *server.Error
		if err == nil || wait <= 0 || !errors.As(err, &e) || e.Code != server.CodeNotFound || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond): // another replica sends it when it is reachable
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
