package storage

import "golang.org/x/sys/unix"

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "" // not known, which is safe: the page cache counts as lost then
	}
	return id
}
