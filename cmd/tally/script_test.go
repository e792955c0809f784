package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this test binary the program, too: a script runs `tally` as a
// user types it, in a process of its own, and so does every owner that a
// script's verbs start.
func TestMain(m *testing.M) {
	// No test leaves a secret in the keyring of whoever runs it.
	os.Setenv("TALLY_KEYRING", "file")
	release := func(v string) func() {
		return func() { version = v; os.Exit(realMain()) }
	}
	testscript.Main(m, map[string]func(){
		"tally": release(""), "tally-v1": release("v0.1.0"), "tally-v2": release("v0.2.0"),
	})
}

// TestScript runs testdata/*.txtar. Each script has a home of its own and
// loopback ports of the system's choice; owners it left behind are stopped.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[mcpClients{}] = map[string]*mcpClient{}
			env.Defer(func() { stopAll(t, env.WorkDir) })
			for name, value := range scriptEnv(env.WorkDir) {
				env.Setenv(name, value)
			}
			return os.MkdirAll(env.Getenv("HOME"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode":   exitCodeCmd,
			"sameexport": sameExportCmd,
			"setenv":     setenvCmd,
			"eventid":    eventIDCmd,
			"mcp":        mcpCmd,
			"damage":     damageCmd,
			"await":      awaitCmd,

			"agekey":     ageKeyCmd,
			"entryhash":  entryHashCmd,
			"erasedby":   erasedByCmd,
			"breakview":  breakViewCmd,
			"breakentry": breakEntryCmd,
			"joinaside":  joinAsideCmd,
			"until":      untilCmd,
			"agree":      agreeCmd,

			"awaitwaits":  awaitWaitsCmd,
			"killowner":   killOwnerCmd,
			"interrupted": interruptedCmd,
		},
	})
}

func scriptEnv(work string) map[string]string {
	return map[string]string{
		"HOME":         filepath.Join(work, "user"),
		"TALLY_HOME":   filepath.Join(work, "a"),
		"TALLY_LABEL":  "a",
		"TALLY_LISTEN": "127.0.0.1:0",
		"TALLY_AGENT":  "tester",

		"TALLY_BALLAST": "off",
		"TZ":            "UTC",
	}
}

// plainEnv is this process's environment without what would change what a
// test does: the tester's own settings of tally and of its clients, and what a
// hook of git says of the repository it runs in.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name != "TALLY_KEYRING" && strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, "GIT_") || name == "CLAUDE_CONFIG_DIR"
	})
}

// stopAll ends every owner below a work directory.
func stopAll(t *testing.T, work string) {
	err := filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "socket" {
			return nil // files come and go while owners end
		}
		run := filepath.Dir(path)
		h := home{Run: run, State: filepath.Join(filepath.Dir(run), "state")}
		if _, err := stopOwner(context.Background(), h); err != nil {
			t.Errorf("stop the owner of %s: %v", run, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
