package client

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Arguments takes exactly the named arguments of a command's usage line, and says which one is missing.
// The one that is called TOPIC must be the name of a topic.
func Arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many: %s", args[len(names)], cmd.UseLine())
		}
		for i, name := range names {
			if name == "TOPIC" {
				if err := checkTopic(args[i]); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// Group makes cmd a command that only has others below it. Alone it prints its help; a word that is none
// of them is an error that names the nearest.
func Group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(below...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = Subcommand
	return cmd
}

// Subcommand refuses words that are no command below cmd.
func Subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // changes of a letter
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// checkTopic refuses what openapi.yaml does not call a name, before it becomes a part of an address: there
// a slash, or two dots, would make it the address of something else.
func checkTopic(name string) error {
	switch {
	case name == "":
		return errors.New("TOPIC must not be empty")
	case !topicName.MatchString(name) || name == "." || name == "..":
		return fmt.Errorf(`topic name %.80q: must have 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and not be "." or ".."`, name)
	default:
		return nil
	}
}

// checkNumber refuses a flag that was given a number below the least.
func checkNumber(cmd *cobra.Command, flag string, value, least int64) error {
	if cmd.Flags().Changed(flag) && value < least {
		return fmt.Errorf("--%s %d: must be at least %d", flag, value, least)
	}
	return nil
}
