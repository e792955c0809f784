package main

import (
	"github.com/spf13/cobra"
)

type eventPage struct {
	Events     []event `json:"events"`
	Count      int     `json:"count"`
	HasMore    bool    `json:"has_more"`
	NextCursor string  `json:"next_cursor"`
	TimedOut   bool    `json:"timed_out"`
	Note       string  `json:"note"`
}

func newEventsList(a *app) *cobra.Command {
	var f eventFilter
	var before, order string
	var preview bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List events, newest first; with --cursor or --since in order of arrival",
		Example: `  tally events list --to @me
  tally events list --stream project/x --type task.request --status open --limit 20
  tally events list --json --cursor "$CURSOR"`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := f.args(false)
			if err != nil {
				return err
			}
			in.text("before_event_id", before).text("order", order)
			if preview {
				in["preview"] = true
			}
			raw, err := a.call(cmd.Context(), "event_list", in)
			if err != nil {
				return err
			}
			return show(a, raw, func(p eventPage) error {
				own := 0
				for _, e := range p.Events {
					if f.mine() && e.ownAck() {
						own++
						continue
					}
					a.printEvent(e)
				}
				if own > 0 {
					a.say("%s of your own left out; --json has them", plural(own, "ack"))
				}
				if p.Note != "" {
					a.say("%s", p.Note)
				}
				if p.HasMore {
					a.say("there is more: --cursor %s", p.NextCursor)
				} else if p.Count == 0 {
					a.say("no event matches")
				}
				return nil
			})
		},
	}
	f.flags(cmd.Flags(), true)
	fs := cmd.Flags()
	fs.StringVar(&before, "before", "", "only before this event id")
	fs.StringVar(&order, "order", "", "asc or desc")
	fs.BoolVar(&preview, "preview", false, "cut bodies to 200 characters")
	return cmd
}
