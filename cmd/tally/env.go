package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix begins the variable of every flag: --http is TALLY_HTTP. A flag on
// the command line wins.
const envPrefix = "TALLY_"

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applyEnv sets the flags of cmd that were not typed and whose variable is
// set. An empty variable counts as not set.
func applyEnv(cmd *cobra.Command, getenv func(string) string) error {
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Hidden || f.Name == "help" || failed != nil {
			return
		}
		name := envName(f.Name)
		value := getenv(name)
		if value == "" {
			return
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[fromEnv] = []string{name}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = usage(f.Name, "unset "+name+" or give it a value that --"+f.Name+" takes", "%s", badValue(f, name, value))
		}
	})
	return failed
}

// fromEnv marks a flag that its variable has set.
const fromEnv = "env"

// typed reports whether a flag was given on the command line.
func typed(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Changed && f.Annotations[fromEnv] == nil
}

// badValue says what a flag takes, in place of what the parser of numbers
// thinks of a value.
func badValue(f *pflag.Flag, name, value string) string {
	takes := map[string]string{
		"bool": "true or false", "int": "a whole number", "uint64": "a whole number from 0 on",
		"float64": "a number", "duration": "a time like 30s, 5m or 2h",
	}[f.Value.Type()]
	if takes == "" {
		return fmt.Sprintf("%s does not take %q", name, value)
	}
	return fmt.Sprintf("%s takes %s, not %q", name, takes, value)
}
