// Package config reads what a node is told: a YAML file, the environment, and flags over both.
//
// Every package owns its Config; this one composes them and gives each field a name, which is the
// same everywhere: http.address in a file is
//
//	http:
//	  address: 127.0.0.1:8080
//
// in the environment it is WEIR_HTTP_ADDRESS, on the command line --set http.address=127.0.0.1:8080.
//
//	loaded, err := config.Load(config.Sources{File: "weir.yaml", Environ: os.Environ(), Flags: flags})
//
// Load promises that what it returns is valid, and that an error names every mistake at once: each
// unknown name, each value that cannot be read, each value that is not allowed, with its source.
package config
