package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// mail is a message as tools return it, as far as it is shown to people.
type mail struct {
	ID        string `json:"messageId"`
	From      string `json:"from"`
	To        string `json:"to"`
	Subject   string `json:"subject"`
	Priority  string `json:"priority"`
	Thread    string `json:"threadId"`
	SentAt    string `json:"sentAt"`
	Box       string `json:"box"`
	Status    string `json:"status"`
	Preview   string `json:"preview"`
	Body      string `json:"body"`
	Truncated bool   `json:"bodyTruncated"`
	Archived  string `json:"archivedAt"`

	Recipients int `json:"recipientCount"`
	ReadCount  int `json:"readCount"`
}

func newInbox(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Send, list, read and archive mail between identities",
		Example: `  tally inbox list --status unread
  tally inbox read evt_20260704T101112_0123456789ab
  tally inbox send --to lap:codex:x --subject "Review" --body "Please look at the parser."`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newInboxList(a), newInboxRead(a), newInboxSend(a), newInboxArchive(a))
	return cmd
}

func newInboxList(a *app) *cobra.Command {
	var f struct {
		box, status, to, from, thread string
		archived                      bool
		limit, offset                 int
	}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List mail, newest first",
		Example: `  tally inbox list --status unread
  tally inbox list --box outbox --json
  tally inbox list --to lap:codex:x`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := args{}
			in.text("box", f.box).text("status", f.status).text("to", f.to).text("fromIdentity", f.from).text("threadId", f.thread)
			if f.archived {
				in["includeArchived"] = true
			}
			if f.limit != 0 || cmd.Flags().Changed("limit") {
				in["limit"] = f.limit
			}
			if f.offset != 0 {
				in["offset"] = f.offset
			}
			raw, err := a.call(cmd.Context(), "list_messages", in)
			if err != nil {
				return err
			}
			type page struct {
				Total    int64  `json:"totalCount"`
				Unread   int64  `json:"unreadCount"`
				Next     *int   `json:"nextOffset"`
				Note     string `json:"note"`
				Messages []mail `json:"messages"`
			}
			return show(a, raw, func(p page) error {
				for _, m := range p.Messages {
					a.printMail(m)
				}
				if len(p.Messages) == 0 {
					a.say("no mail")
				}
				if p.Note != "" && f.to != "" && f.to != "@me" { // of oneself one knows how it is spelled
					a.say("%s", p.Note)
				}
				if p.Next != nil {
					a.say("%d of %d; go on with --offset %d", len(p.Messages), p.Total, *p.Next)
				}
				if f.box != "outbox" {
					a.say("%d unread", p.Unread)
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.box, "box", "", "inbox, outbox or all (default inbox)")
	fs.StringVar(&f.status, "status", "", "all, read or unread (default all)")
	fs.StringVar(&f.to, "to", "", "whose mailbox (default: yours)")
	fs.StringVar(&f.from, "from", "", "only from this sender")
	fs.StringVar(&f.thread, "thread", "", "only of this thread")
	fs.BoolVar(&f.archived, "archived", false, "with what is archived")
	fs.IntVar(&f.limit, "limit", 0, "at most so many, 1..500 (default 50)")
	fs.IntVar(&f.offset, "offset", 0, "leave out the first so many")
	return cmd
}

// printMail shows a message on one line, the beginning of its body below.
func (a *app) printMail(m mail) {
	state := m.Status
	if m.Box == "outbox" {
		state = "sent"
	}
	if m.Archived != "" {
		state += ", archived"
	}
	if m.Priority != "normal" && m.Priority != "" {
		state += ", " + m.Priority
	}
	fmt.Fprintf(a.Stdout, "%s  %s  %s -> %s  [%s]  %s\n", shortTime(m.SentAt), oneLine(m.ID, 64), oneLine(m.From, 80), oneLine(m.To, 80),
		oneLine(state, 40), oneLine(m.Subject, 200))
	if m.Preview != "" {
		end := ""
		if m.Truncated {
			end = "..."
		}
		fmt.Fprintf(a.Stdout, "%s%s\n", block(m.Preview, "    "), end)
	}
}

func newInboxRead(a *app) *cobra.Command {
	var peek bool
	cmd := &cobra.Command{
		Use:   "read MESSAGE_ID",
		Short: "Show a message and mark it as read when you received it",
		Example: `  tally inbox read evt_20260704T101112_0123456789ab
  tally inbox read evt_20260704T101112_0123456789ab --peek`,
		Args: positional("MESSAGE_ID"),
		RunE: func(cmd *cobra.Command, words []string) error {
			raw, err := a.call(cmd.Context(), "get_message", args{"messageId": words[0]})
			if err != nil {
				return err
			}
			var m struct {
				mail
				DurableOn []string `json:"durable_on"`
				NotYet    []string `json:"not_yet"`
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			if m.Status == "unread" && !peek {
				if _, err := a.call(cmd.Context(), "mark_read", args{"messageId": words[0]}); err != nil {
					return err
				}
				m.Status = "read"
				m.ReadCount++
			}
			if a.json {
				return a.printJSON(raw)
			}
			a.printMail(m.mail)
			fmt.Fprintf(a.Stdout, "%s\n", block(m.Body, "    "))
			a.say("thread %s; read by %d of %d", oneLine(m.Thread, 80), m.ReadCount, m.Recipients)
			a.sayDurable(m.DurableOn, m.NotYet, false)
			return nil
		},
	}
	cmd.Flags().BoolVar(&peek, "peek", false, "mark nothing")
	return cmd
}

func newInboxSend(a *app) *cobra.Command {
	var f struct {
		to, subject, body, bodyFile, priority, reply, thread, key string
	}
	cmd := &cobra.Command{
		Use:   "send --to IDENTITY --subject SUBJECT (--body TEXT | --body-file FILE)",
		Short: "Send mail and print its id",
		Long: `Send mail to one identity, or to * for everybody who is known here now. A
recipient of whom nothing has arrived is refused, with names that look like it.`,
		Example: `  tally inbox send --to lap:codex:x --subject "Review" --body "Please look at the parser."
  tally inbox send --to '*' --subject "Freeze" --body "No pushes until noon." --priority high`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := a.body(cmd, f.body, f.bodyFile)
			if err != nil {
				return err
			}
			in := args{}
			in.text("to", f.to).text("subject", f.subject).text("body", body).text("priority", f.priority)
			in.text("inReplyTo", f.reply).text("threadId", f.thread).text("idempotency_key", f.key)
			raw, err := a.call(cmd.Context(), "add_message", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(r struct {
				ID         string   `json:"messageId"`
				Recipients int      `json:"recipientCount"`
				DurableOn  []string `json:"durable_on"`
				NotYet     []string `json:"not_yet"`
				Replayed   bool     `json:"replayed"`
			}) error {
				fmt.Fprintln(a.Stdout, r.ID)
				if f.to == "*" {
					a.say("sent to %d", r.Recipients)
				}
				a.sayDurable(r.DurableOn, r.NotYet, r.Replayed)
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.to, "to", "", "recipient: an identity, or * for everybody known (required)")
	fs.StringVar(&f.subject, "subject", "", "one line of at most 512 bytes (required)")
	fs.StringVar(&f.body, "body", "", "text of the message")
	fs.StringVar(&f.bodyFile, "body-file", "", "file with the text; - is stdin")
	fs.StringVar(&f.priority, "priority", "", "low, normal or high (default normal)")
	fs.StringVar(&f.reply, "reply-to", "", "id of the message that it answers")
	fs.StringVar(&f.thread, "thread", "", "thread that it belongs to")
	fs.StringVar(&f.key, "key", "", "idempotency key: a repeat with it gets the first result")
	return cmd
}

func newInboxArchive(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "archive MESSAGE_ID",
		Short:   "Take a message you received out of the usual listing",
		Example: "  tally inbox archive evt_20260704T101112_0123456789ab",
		Args:    positional("MESSAGE_ID"),
		RunE: func(cmd *cobra.Command, words []string) error {
			raw, err := a.call(cmd.Context(), "archive_message", args{"messageId": words[0]})
			if err != nil {
				return err
			}
			return show(a, raw, func(struct{}) error {
				a.say("archived; list it with --archived")
				return nil
			})
		},
	}
}
