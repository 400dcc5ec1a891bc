//go:build !linux && !darwin

package storage

func bootID() string { return "" }
