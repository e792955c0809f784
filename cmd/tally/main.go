package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() { os.Exit(realMain()) }

func realMain() int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	return run(ctx, os.Args[1:], &app{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Dir: dir,
	})
}

// withSignals ends the context at the first stop signal and lets the second
// one kill the process the usual way.
func withSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, stopSignals()...)
	done := make(chan struct{})
	go func() {
		select {
		case sig := <-ch:
			signal.Stop(ch)
			if sig == os.Interrupt {
				cancel(errInterrupt)
			} else {
				cancel(errTerminated)
			}
		case <-done:
			signal.Stop(ch)
		}
	}()
	return ctx, func() { close(done); cancel(nil) }
}

// app is what a command runs in: its streams, environment, folder and the
// flags that every command has.
type app struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Dir            string // working directory; names the project

	// isTerminal replaces the look at a stream in tests.
	isTerminal func(io.Writer) bool

	json  bool
	quiet bool
	root  string // --home
	agent string
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return finish(ctx, err, cmd, a.Stderr, a.json || asksJSON(args, a.Getenv))
}

// asksJSON reports whether a command line asks for JSON. When it cannot be
// understood, its flags have not been looked at.
func asksJSON(args []string, getenv func(string) string) bool {
	asked := false
	say := func(value string) {
		if b, err := strconv.ParseBool(value); err == nil {
			asked = b
		}
	}
	say(getenv(envName("json")))
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "--json" {
			asked = true
		} else if value, ok := strings.CutPrefix(arg, "--json="); ok {
			say(value)
		}
	}
	return asked
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "tally",
		Short: "One log, every machine: what your coding agents know and agree on",
		Long: `Tallystick keeps one signed log of what coding agents know and agree on, with a
full replica on every machine you own. Agents talk to the replica on their own
machine; replicas find each other and converge, also after months apart.

Every flag has a variable: --http is TALLY_HTTP, --home is TALLY_HOME. Exit codes:
0 done, 1 failure, 2 usage, 3 not found, 4 conflict, 5 nothing came in time,
6 not reachable, 7 done in part, 130 interrupted.`,
		Example: `  tally up                       run the replica of this machine
  claude mcp add --scope user tally -- tally mcp --agent claude
  tally invite                   let another machine join
  tally status                   how far every replica is
  tally events append --type note --stream project/x --room talk --body hello`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return applyEnv(cmd, a.Getenv) },
		Args:              cobra.ArbitraryArgs,
		RunE:              group,
	}
	pf := root.PersistentFlags()
	pf.BoolVar(&a.json, "json", false, "print JSON on stdout, and errors as one JSON object on stderr")
	pf.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing on stderr unless it fails")
	pf.StringVar(&a.root, "home", "", "folder of the replica; also TALLY_HOME (default: the XDG folders)")
	pf.StringVar(&a.agent, "agent", "", "agent part of the identity host:agent:project to act under; the project is the Git repository of the working directory, outside of one it is host-agent (default: the OS user)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := "see " + cmd.CommandPath() + " --help"
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			return usage(bad.GetFlag().Name, hint, "%s", badValue(bad.GetFlag(), "--"+bad.GetFlag().Name, bad.GetValue()))
		}
		return usage("", hint, "%v", err)
	})
	root.Version = programVersion().Version
	root.SetVersionTemplate("tally {{.Version}}\n")
	root.SetHelpCommand(newHelp())
	root.AddCommand(
		newUp(a), newStop(a), newInit(a), newRules(a), newHook(a), newMCP(a), newInvite(a), newJoin(a), newMembers(a), newRevoke(a), newLeave(a), newRename(a), newStatus(a), newEvents(a),
		newClaims(a), newInbox(a), newTasks(a), newMerges(a), newSummaries(a), newMemory(a), newCheckpoint(a), newSearch(a), newArtifact(a), newImport(a), newExport(a),
		newDoctor(a), newRebuild(a), newLog(a), newQuarantine(a), newClock(a), newErase(a), newBackup(a), newRestore(a),
		newToken(a), newVersion(a), newCompletion(a),
	)
	offerValues(root)
	return root
}

// newHelp is `tally help COMMAND`, which says so when there is none.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  tally help events wait",
		RunE: func(cmd *cobra.Command, words []string) error {
			about, rest, err := cmd.Root().Find(words)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return group(about, rest)
			}
			return about.Help()
		},
	}
}

// group is what a command that only holds others does: without words it shows
// its help, with an unknown one it says so.
func group(cmd *cobra.Command, args []string) error {
	hint := "see " + cmd.CommandPath() + " --help"
	if asJSON, _ := cmd.Flags().GetBool("json"); len(args) == 0 && asJSON {
		return usage("command", hint, "%s needs a command", cmd.CommandPath())
	}
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + near[0] + "?"
	}
	return usage("command", hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// positional wants exactly the named arguments.
func positional(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		hint := "usage: " + cmd.UseLine()
		if len(args) < len(names) {
			return usage(names[len(args)], hint, "%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return usage("", hint, "unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// atMost wants no more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usage("", "usage: "+cmd.UseLine(), "unexpected argument %q", args[n])
		}
		return nil
	}
}
