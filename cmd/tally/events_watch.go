package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newEventsWatch(a *app) *cobra.Command {
	var f eventFilter
	var exclude string
	var count int
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print events as they arrive, until interrupted",
		Long: `Print events as they arrive here, the matching ones already here first when a
cursor or --since is given. With --json every batch is one line with events, count
and next_cursor; keep the cursor and go on with --cursor after a restart.`,
		Example: `  tally events watch --to @me --exclude-writer @me
  tally events watch --stream project/x --json | jq -c '.events[]'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := f.args(true)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(in)
			if err != nil {
				return fmt.Errorf("encode arguments: %w", err)
			}
			s, err := session(a.agent, a.Dir, "cli")
			if err != nil {
				return err
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			seen := 0
			q := server.WatchRequest{Session: s, Args: raw, ExcludeWriter: exclude}
			err = c.Watch(cmd.Context(), q, func(batch json.RawMessage) error {
				var page eventPage
				if err := json.Unmarshal(batch, &page); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
				if a.json {
					if err := a.printJSON(batch); err != nil {
						return err
					}
				} else {
					for _, e := range page.Events {
						a.printEvent(e)
					}
				}
				if seen += len(page.Events); count > 0 && seen >= count {
					return errEnough
				}
				return nil
			})
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		},
	}
	f.flags(cmd.Flags(), false)
	cmd.Flags().StringVar(&exclude, "exclude-writer", "", "leave out what this identity wrote; @me is you")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many events (default: never)")
	return cmd
}

var errEnough = errors.New("enough events")
