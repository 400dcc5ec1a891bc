package config

// Set sets one setting, unchecked.
func Set(c *Config, name, value string) error { return lookup(name).set(c, value) }

var (
	ParseBytes    = parseBytes
	PrintBytes    = printBytes
	PrintDuration = printDuration
)
