package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"tallystick/replica"
	"tallystick/server"
)

// joinInfo is what a join has led to.
type joinInfo struct {
	Mesh    string `json:"mesh"`
	Label   string `json:"label"`
	Inviter string `json:"inviter"`
	Started bool   `json:"started"` // the replica runs in the background
	// Bring is what became of the entries of the former mesh, with --bring.
	Bring *bringInfo `json:"bring,omitempty"`
}

func newJoin(a *app) *cobra.Command {
	var s settings
	var noStart, bring bool
	cmd := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Join the mesh that a token invites to",
		Long: `Join the mesh of another machine with a token that tally invite printed there,
and start the replica in the background, so that it catches up. The private key of
this machine never leaves it. A mesh of one without entries is given up for it; a
replica that holds entries of its own refuses, unless --bring takes them along: they
are written again in the new mesh, each once, and the old store goes when nothing in
it is missing there. One that was interrupted goes on at the next start.`,
		Example: "  tally join tally1.kwHEEA...\n  tally join tally1.kwHEEA... --label laptop --listen 0.0.0.0:7717\n  tally join tally1.kwHEEA... --bring",
		Args:    positional("TOKEN"),
		RunE: func(cmd *cobra.Command, words []string) error {
			h, err := a.home()
			if err != nil {
				return err
			}
			if err := s.load(cmd, h); err != nil {
				return err
			}
			info, err := a.join(cmd.Context(), h, s, words[0], !noStart, bring)
			if err != nil {
				return err
			}
			return a.tell(info, func() error {
				fmt.Fprintf(a.Stdout, "joined %s as %s\n", info.Mesh, info.Label)
				if info.Bring != nil {
					a.printBrought(info.Bring)
				}
				a.say("admitted by %s; see tally status", info.Inviter)
				if !info.Started {
					a.say("start it with tally up")
				}
				return nil
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&bring, "bring", false, "take along what this machine has written in its own mesh of one")
	cmd.Flags().BoolVar(&noStart, "no-start", false, "leave it to you to run tally up")
	return cmd
}

// join turns this home over to another mesh. No owner may run meanwhile; one
// that does is stopped, and started again when the join fails.
func (a *app) join(ctx context.Context, h home, s settings, token string, start, bring bool) (joinInfo, error) {
	if err := a.checkJoin(ctx, h, s, token, bring); err != nil {
		return joinInfo{}, err
	}
	ran, err := stopOwner(ctx, h)
	if err != nil {
		return joinInfo{}, err
	}
	if ran {
		a.say("stopped the running replica for the join")
	}
	res, brought, err := a.joinLocked(ctx, h, s, token, bring)
	if err != nil {
		if ran && !res.Brings {
			if again := a.startOwner(ctx, h); again != nil {
				a.say("the replica did not start again: %v", again)
			}
		}
		return joinInfo{}, err
	}
	info := joinInfo{Mesh: res.Mesh.String(), Label: res.Label, Inviter: res.Inviter, Started: start, Bring: brought}
	if start {
		if err := a.startOwner(ctx, h); err != nil {
			return joinInfo{}, fmt.Errorf("joined %s as %s, but the replica does not start: %w", info.Mesh, info.Label, err)
		}
	}
	return info, nil
}

// checkJoin finds what stands against a join before a running replica is
// stopped for it.
func (a *app) checkJoin(ctx context.Context, h home, s settings, token string, bring bool) error {
	if err := s.check(h); err != nil {
		return s.explain(h, err)
	}
	if err := replica.CheckJoin(replicaConfig(h, s, nil), token); err != nil {
		return err
	}
	if bring {
		return nil // the join itself looks at what there is
	}
	c, err := connectOnly(ctx, h)
	if c == nil || err != nil {
		return err
	}
	defer c.Close()
	err = c.CheckLeave(ctx)
	var e *server.Error
	if errors.As(err, &e) && e.Code == server.CodeUnsupportedVersion {
		return nil // an older one cannot tell; the join looks again
	}
	return err
}

func (a *app) joinLocked(ctx context.Context, h home, s settings, token string, bring bool) (res replica.JoinResult, brought *bringInfo, err error) {
	if err := h.make(); err != nil {
		return res, nil, err
	}
	lock, err := lockOwner(h)
	if err != nil {
		return res, nil, err
	}
	defer lock.release()
	s.choosePort()
	log := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if res, err = replica.JoinWith(ctx, replicaConfig(h, s, log), token, replica.JoinOptions{Bring: bring}); err != nil {
		return res, nil, err
	}
	s.Label = res.Label
	if err := s.save(h); err != nil || !res.Brings {
		return res, nil, err
	}
	if brought, err = a.bringNow(ctx, h, s, log); err != nil {
		if ctx.Err() != nil {
			a.say("joined %s as %s; what this machine has written is brought at the next start", res.Mesh, res.Label)
			return res, nil, err
		}
		e := *asError(err)
		e.Message = fmt.Sprintf("joined %s as %s, but what this machine has written is not brought yet: %s", res.Mesh, res.Label, e.Message)
		if e.Hint == "" {
			e.Hint = "the next start goes on with it: tally up"
		}
		return res, nil, &e
	}
	return res, brought, nil
}
