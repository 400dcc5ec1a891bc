package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes what is in force as YAML that Load reads back, and with origins each value's source as a comment.
func (l *Loaded) Print(w io.Writer, origins bool) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, row := range table {
		value := node(row, row.get(&l.Config))
		if origins {
			value.LineComment = string(l.origins[row.name])
		}
		insert(root, strings.Split(row.name, "."), value)
	}
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(root); err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	return out.Close()
}

// node is a value in YAML.
func node(row setting, value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	switch row.kind {
	case "text":
		n.Style = yaml.DoubleQuotedStyle
	case "list":
		n = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for word := range strings.SplitSeq(value, ",") {
			if word != "" {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: word, Style: yaml.DoubleQuotedStyle})
			}
		}
	}
	return n
}

// insert puts value below the sections of path, which it makes where they are missing.
func insert(section *yaml.Node, path []string, value *yaml.Node) {
	for i := 0; i < len(section.Content); i += 2 {
		if section.Content[i].Value == path[0] {
			insert(section.Content[i+1], path[1:], value)
			return
		}
	}
	name := &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}
	if len(path) == 1 {
		section.Content = append(section.Content, name, value)
		return
	}
	below := &yaml.Node{Kind: yaml.MappingNode}
	section.Content = append(section.Content, name, below)
	insert(below, path[1:], value)
}

// Doc is a row of the reference of settings.
type Doc struct{ Name, Env, Kind, Default, Meaning string }

// Docs returns every setting with its default and meaning, in the order of the reference.
func Docs() []Doc {
	initial := Default()
	docs := make([]Doc, len(table))
	for i, row := range table {
		docs[i] = Doc{row.name, EnvName(row.name), row.kind, row.get(&initial), row.meaning}
	}
	return docs
}

func lookup(name string) *setting {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}
