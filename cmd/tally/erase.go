package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tallystick/server"
)

func newErase(a *app) *cobra.Command {
	var reason string
	var yes, status bool
	cmd := &cobra.Command{
		Use:   "erase ID...",
		Short: "Remove content from every replica, for good",
		Long: `Remove the content of events, summaries, memories and artifacts from the log, the
views and the disk of every replica of the mesh. Only their envelope stays: who,
when, and hashes, by which nothing can be guessed. Claims, acks and admissions cannot be
erased. A replica that is away erases when it is back; --status shows which have.
Files outside of the replicas are not reached: exports, backups, and what agents
have read.`,
		Example: "  tally erase evt_20261130T222400_6a6edd9fc9cc --reason \"holds a token\"\n  tally erase --status",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if status && len(ids) > 0 {
				return usage("ID", "use one of them", "--status takes no ids")
			}
			if !status && len(ids) == 0 {
				return usage("ID", "usage: "+cmd.UseLine(), "ID is missing")
			}
			if !status && reason == "" {
				return usage("reason", "it is kept for good: say why, not what", "--reason is missing")
			}
			if status {
				return a.eraseStatus(cmd.Context())
			}
			return a.erase(cmd.Context(), ids, reason, yes)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record; it cannot be erased")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&status, "status", false, "show past erases and which replicas have applied them")
	return cmd
}

func (a *app) erase(ctx context.Context, ids []string, reason string, yes bool) error {
	s, err := a.session("cli")
	if err != nil {
		return err
	}
	q := server.EraseRequest{Session: s, IDs: ids, Reason: reason, OpID: server.NewOpID(), DryRun: true}
	ans, err := ask(ctx, a, ops[server.EraseAnswer]("erase", q))
	if err != nil {
		return err
	}
	if !yes {
		for _, e := range ans.Entries {
			a.say("%s  %s  %s  %s, %d bytes", e.ID, shortTime(e.Time), e.Kind, oneLine(e.Author, 80), e.Bytes)
		}
		if err := a.confirm(fmt.Sprintf("erase %s on every replica, for good?", pluralOf(len(ans.Entries), "entry", "entries"))); err != nil {
			return err
		}
	}
	q.DryRun = false
	if ans, err = ask(ctx, a, ops[server.EraseAnswer]("erase", q)); err != nil {
		return err
	}
	return a.tell(ans, func() error { return a.printErased(&ans) })
}

func (a *app) printErased(ans *server.EraseAnswer) error {
	for _, e := range ans.Entries {
		what := "erased"
		if e.Already {
			what = "was erased before"
		}
		fmt.Fprintf(a.Stdout, "%s %s\n", e.ID, what)
	}
	for _, r := range ans.Replicas {
		fmt.Fprintf(a.Stdout, "%s: %s\n", oneLine(r.Label, 40), appliedText(r.Applied))
	}
	if slices.ContainsFunc(ans.Replicas, func(r server.EraseReplicas) bool { return !r.Applied }) {
		a.say("see how far it is with tally erase --status")
	}
	return nil
}

func appliedText(done bool) string {
	if done {
		return "off the disk"
	}
	return "not yet"
}

func (a *app) eraseStatus(ctx context.Context) error {
	type erasures struct {
		Erasures []server.EraseState `json:"erasures"`
	}
	list, err := ask(ctx, a, ops[erasures]("erasures", nil))
	if err != nil {
		return err
	}
	return a.tell(list, func() error {
		if len(list.Erasures) == 0 {
			fmt.Fprintln(a.Stdout, "nothing was erased")
		}
		for _, e := range list.Erasures {
			fmt.Fprintf(a.Stdout, "%s  %s  %s  %s\n", shortTime(e.Time), pluralOf(len(e.Hashes), "entry", "entries"), oneLine(e.Author, 80), oneLine(e.Reason, 200))
			for _, r := range e.Replicas {
				fmt.Fprintf(a.Stdout, "  %s: %s\n", oneLine(r.Label, 40), appliedText(r.Applied))
			}
		}
		return nil
	})
}

// confirm asks on the terminal; where there is none, it wants --yes.
func (a *app) confirm(question string) error {
	f, ok := a.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return usage("yes", "add --yes when you mean it", "this is asked on a terminal, and there is none")
	}
	fmt.Fprintf(a.Stderr, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.LimitReader(f, 4096)).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &server.Error{Code: server.CodeConflict, Message: "nothing was done", Hint: "answer y to go on"}
}
