package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the release, set by -ldflags "-X main.version=..."; without it
// the build information speaks.
var version string

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func programVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Date = s.Value
			case "vcs.modified":
				v.Dirty = s.Value == "true"
			}
		}
	}
	if v.Version == "" {
		v.Version = "0.0.0-dev"
	}
	return v
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  tally version\n  tally version --json",
		Args:    positional(),
		RunE: func(*cobra.Command, []string) error {
			v := programVersion()
			if a.json {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.Stdout, "tally %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
			if v.Commit != "" {
				fmt.Fprintf(a.Stdout, "commit %s %s\n", v.Commit, v.Date)
			}
			return nil
		},
	}
}
