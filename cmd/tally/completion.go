package main

import (
	"github.com/spf13/cobra"
)

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Example: `  tally completion bash > ~/.local/share/bash-completion/completions/tally
  tally completion zsh > "${fpath[1]}/_tally"
  tally completion fish > ~/.config/fish/completions/tally.fish`,
		Args:      positional("SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			case "fish":
				return root.GenFishCompletion(a.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Stdout)
			}
			e := usage("SHELL", useAllowed, "there is no completion for %q", args[0])
			e.Allowed = shells
			return e
		},
	}
}
