package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/query/logstream"
	"tallystick/server"
)

// toolOf is the tool behind a command, whose fields say what its flags take.
var toolOf = map[string]string{
	"events append": "event_append", "events list": "event_list", "events wait": "event_wait", "events watch": "event_wait", "events ack": "event_ack",
	"inbox list": "list_messages", "inbox read": "get_message", "inbox archive": "archive_message", "artifact get": "artifact_get", "inbox send": "add_message",
	"summaries add": "add_summary", "summaries list": "get_all_summaries", "summaries search": "query_summaries",
	"memory add": "memory_add", "memory search": "memory_search", "memory reflect": "memory_reflect",
	"checkpoint save": "checkpoint_save", "checkpoint resume": "checkpoint_resume",
	"artifact put": "artifact_put", "merges": "merges_list", "search": "search",
	"tasks create": "task_create", "tasks list": "task_list", "claims": "claim_list",
}

// ownValues are those of flags that no tool knows, by command and flag, and
// of fields whose tool leaves the check to the log. They are also what the
// shell offers where other values would do, too.
func ownValues() map[string][]string {
	return map[string][]string{
		"events append --type":      {logstream.TypeRequest, "task.reply", "status", "note"},
		"events append --status":    logstream.Statuses(),
		"events append --to":        {"@me"},
		"events list --status":      logstream.Statuses(),
		"events list --order":       {"asc", "desc"},
		"events list --to":          {"@me"},
		"events wait --status":      logstream.Statuses(),
		"events wait --to":          {"@me"},
		"events watch --status":     logstream.Statuses(),
		"events watch --to":         {"@me"},
		"events ack --status":       logstream.AckStatuses(),
		"search --kind":             server.SearchKinds(),
		"search --identity":         {"@me", "all"},
		"summaries list --identity": {"@me", "all"},
		"export --format":           exportFormats,
		"export --kind":             exportKinds,
		"init --client":             clientNames(),
		"mcp --toolsets":            server.ToolsetNames(),
		"up --toolsets":             server.ToolsetNames(),
		"up --http":                 {"off"},
	}
}

// offerValues lets the shell complete the values of flags.
func offerValues(root *cobra.Command) {
	own := ownValues()
	offer(root, "agent", clientNames())
	for _, cmd := range commandsBelow(root) {
		path := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
		offered := map[string][]string{}
		for field, values := range server.FieldValues(toolOf[path]) {
			if flag, ok := strings.CutPrefix(typedAs(cmd, field), "--"); ok {
				offered[flag] = values
			}
		}
		for name, values := range own {
			if flag, ok := strings.CutPrefix(name, path+" --"); ok {
				offered[flag] = values
			}
		}
		for flag, values := range offered {
			if f := cmd.Flags().Lookup(flag); f != nil && f.Value.Type() == "bool" {
				continue
			}
			offer(cmd, flag, values)
		}
	}
}

// offer registers values for a flag. Only a flag that is not there, or has
// values already, is an error, and a test looks at each.
func offer(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return after(values, begun), cobra.ShellCompDirectiveNoFileComp
	})
}

// after are the values that go on a word, which may be a list already.
func after(values []string, begun string) (list []string) {
	done := begun[:strings.LastIndexByte(begun, ',')+1]
	for _, v := range values {
		if strings.HasPrefix(done+v, begun) {
			list = append(list, done+v)
		}
	}
	return list
}

func commandsBelow(cmd *cobra.Command) []*cobra.Command {
	list := slices.Clone(cmd.Commands())
	for _, c := range cmd.Commands() {
		list = append(list, commandsBelow(c)...)
	}
	return list
}
