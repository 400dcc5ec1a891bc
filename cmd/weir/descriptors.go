package main

import (
	"log/slog"

	"github.com/weirlog/weir/cmd/weir/config"
)

// Descriptors that stay free of connections and of files that are merely kept open: logs that are rolled,
// recovered and cleaned, side files that are replaced, the metadata.
const (
	workDescriptors  = 512
	leastDescriptors = 64
)

// fitDescriptors lowers how many connections and files may be open to what the system lets the process
// open, most. Without that, clients that do nothing but connect could take every descriptor, and a log
// that cannot open its next file ends the node.
func fitDescriptors(cfg *config.Config, most int, logger *slog.Logger) {
	most = max(most, leastDescriptors)
	work := min(workDescriptors, most/4)
	files := min(cfg.Broker.OpenFiles, max(16, most/4))
	connections := min(cfg.Gateway.Connections, most-work-files)
	if files == cfg.Broker.OpenFiles && connections == cfg.Gateway.Connections {
		return
	}
	logger.Info("the system's limit on open files is lower than the settings together", "limit", most,
		"http.connections", connections, "storage.open_files", files)
	cfg.Broker.OpenFiles, cfg.Gateway.Connections = files, connections
}
