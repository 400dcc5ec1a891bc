package storage

import "os"

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not known, which is safe: the page cache counts as lost then
	}
	return string(b)
}
