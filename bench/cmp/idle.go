package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/hashicorp/memberlist"

	"tallystick/bench/engines"
)

// idleSpan is for how long each round watches.
func idleSpan() time.Duration { return 25 * *span }

// compareIdle runs two joined replicas of the product and two processes with
// badger and memberlist, all at once, and watches what processor time they
// take while nobody asks them anything.
func compareIdle(dir string) error {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		return fmt.Errorf("idle needs /proc: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ours, err := startReplicas(ctx, dir)
	if err != nil {
		return err
	}
	bare, err := startBare(ctx, dir)
	if err != nil {
		return err
	}
	time.Sleep(10 * time.Second) // until they have found each other and are still
	var used [2][]float64
	for range *rounds {
		var before [2]time.Duration
		procs := [2][]*exec.Cmd{ours, bare}
		for i := range procs {
			if before[i], err = cpuTime(procs[i]); err != nil {
				return err
			}
		}
		start := time.Now()
		time.Sleep(idleSpan())
		for i := range procs {
			after, err := cpuTime(procs[i])
			if err != nil {
				return err
			}
			used[i] = append(used[i], 100*(after-before[i]).Seconds()/time.Since(start).Seconds()/2)
		}
	}
	header("idle, two joined processes", "% of a core, each", "tallystick / it (less is better)")
	row("`tally up`: store, mesh, index, local API, HTTP", number(median(used[0])), ratio(used[0], used[0]))
	row("badger and memberlist", number(median(used[1])), ratio(used[0], used[1]))
	return nil
}

// startReplicas builds the program and starts two replicas that are joined.
func startReplicas(ctx context.Context, dir string) ([]*exec.Cmd, error) {
	tally := filepath.Join(dir, "tally")
	build := exec.Command("go", "build", "-o", tally, "tallystick/cmd/tally")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	run := func(home string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, tally, args...)
		cmd.Env = append(os.Environ(), "TALLY_HOME="+filepath.Join(dir, home), "TALLY_LABEL="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("tally %s: %w\n%s", args[0], err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	up := func(home string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, tally, "up")
		cmd.Env = append(os.Environ(), "TALLY_HOME="+filepath.Join(dir, home), "TALLY_LABEL="+home)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		for range 100 {
			if _, err := run(home, "status"); err == nil {
				return cmd, nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return nil, errors.New("tally up does not answer")
	}
	a, err := up("a")
	if err != nil {
		return nil, err
	}
	token, err := run("a", "invite", "--quiet")
	if err != nil {
		return nil, err
	}
	if _, err := run("b", "join", token); err != nil {
		return nil, err
	}
	// The join has started a replica that is no child of this process.
	if _, err := run("b", "stop"); err != nil {
		return nil, err
	}
	b, err := up("b")
	return []*exec.Cmd{a, b}, err
}

func startBare(ctx context.Context, dir string) (procs []*exec.Cmd, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	peer := ""
	for i := range 2 {
		cmd := exec.CommandContext(ctx, self, filepath.Join(dir, fmt.Sprint("bare", i)), peer)
		cmd.Env = append(os.Environ(), "TALLY_BENCH_CHILD=idle")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		if err := json.NewDecoder(out).Decode(&peer); err != nil {
			return nil, err
		}
		procs = append(procs, cmd)
	}
	return procs, nil
}

// idleBare is a process with badger and memberlist and nothing to do. It tells
// its address and lives until it is killed.
func idleBare(args []string) error {
	db, err := badger.Open(engines.Tuned(nil)(mkdir(args[0], "")))
	if err != nil {
		return err
	}
	defer db.Close()
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.BindAddr, conf.BindPort = args[0], "127.0.0.1", 0
	conf.Logger = log.New(io.Discard, "", 0)
	list, err := memberlist.Create(conf)
	if err != nil {
		return err
	}
	if len(args) > 1 && args[1] != "" {
		if _, err := list.Join(args[1:2]); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(list.LocalNode().Address()); err != nil {
		return err
	}
	select {}
}

// cpuTime is what all threads of some processes have run for.
func cpuTime(procs []*exec.Cmd) (total time.Duration, err error) {
	for _, p := range procs {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.Process.Pid))
		if err != nil || len(threads) == 0 {
			return 0, fmt.Errorf("process %d is gone", p.Process.Pid)
		}
		for _, t := range threads {
			b, err := os.ReadFile(t)
			if err != nil {
				continue // a thread that has just ended
			}
			ns, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(ns)
		}
	}
	return total, nil
}
