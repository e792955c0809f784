package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newInvite(a *app) *cobra.Command {
	var ttl time.Duration
	var addrs []string
	cmd := &cobra.Command{
		Use:   "invite",
		Short: "Let one other machine join this mesh",
		Long: `Make a token with which one other machine can join this mesh, once, within ten
minutes. Whoever has the token can join, so pass it on like a password. The other
machine must reach one of the addresses in it.`,
		Example: "  tally invite\n  tally invite --ttl 1h --addr desk.example.org:7717\n  ssh laptop tally join \"$(tally invite --quiet)\"",
		Args:    positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl <= 0 {
				return usage("ttl", "give a time like 10m", "--ttl %v is not in the future", ttl)
			}
			q := server.InviteRequest{TTLMillis: ttl.Milliseconds(), Addresses: addrs}
			inv, err := ask(cmd.Context(), a, func(ctx context.Context, c *server.Client) (server.Invite, error) { return c.Invite(ctx, q) })
			if err != nil {
				return err
			}
			return a.tell(inv, func() error {
				fmt.Fprintln(a.Stdout, inv.Token)
				a.say("on the other machine: tally join TOKEN")
				a.say("it is good once, until %s", shortTime(inv.ExpiresAt))
				loopback := len(inv.Addresses) > 0
				for _, addr := range inv.Addresses {
					a.say("  it will dial %s", addr)
					host, _, _ := net.SplitHostPort(addr)
					ip := net.ParseIP(host)
					loopback = loopback && ip != nil && ip.IsLoopback()
				}
				if loopback {
					a.say("these are reached from this machine only: for another one give --addr HOST:PORT, or --listen to tally up")
				}
				return nil
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 10*time.Minute, "how long the token is good, at most 24h")
	cmd.Flags().StringArrayVar(&addrs, "addr", nil, "address at which the other machine reaches this one, HOST:PORT; may be repeated")
	return cmd
}
