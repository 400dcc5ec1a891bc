// Package web holds the pages that a node serves to browsers, as they stand in the binary. They need no
// build step, load nothing from elsewhere, and speak with the node through its public API alone.
//
//	deps.Web = web.Files // index.html at /, every other file under its name
//
// The pages hold to a content security policy without inline scripts and styles, and write what they
// get from a log as text, never as HTML.
package web

import (
	"embed"
	"io/fs"
)

//go:embed index.html app.css app.js favicon.svg
var files embed.FS

// Files are all of them.
var Files fs.FS = files
