package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"
)

func serveCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "receive webhooks and hand them on, until told to stop",
		Description: example("Run what the configuration describes. The log goes to stderr; its line \"ready\" comes once\n"+
			"the listeners are bound and the database has been checked. SIGTERM or Ctrl-C stops: nothing\n"+
			"accepted is lost, nothing stays leased. A second one ends at once, with exit code 130.\n"+
			"SIGHUP is noted in the log and changes nothing: a new configuration needs a restart.\n"+
			"HOOKLATCH_LOG_LEVEL goes before log.level of the configuration.",
			"hooklatch serve -c hooklatch.yaml",
			"hooklatch serve -c hooklatch.yaml --role receive      # forwards are another process's"),
		Flags: []cli.Flag{configFlag(),
			&cli.StringFlag{Name: "role", Value: "all", Usage: "`ROLE` of this process: receive, forward or all"}},
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return serve(c.Context, s, configFile(c), c.String("role"))
		},
	}
}

func serve(ctx context.Context, s *stdio, file, role string) error {
	receives, forwards := role != "forward", role != "receive"
	if receives && forwards && role != "all" {
		return usagef("--role receive, forward or all", "serve: unknown role %q", role)
	}
	cfg, err := readConfig(file)
	if err != nil {
		return err
	}
	level, err := logLevel(cfg.Log.Level)
	if err != nil {
		return err
	}
	secrets, err := cfg.loadSecrets(ctx)
	if err != nil {
		return err
	}
	log := newLogger(s.err, level, cfg.Log.Format)
	logWarnings(log, file, cfg.warnings)

	defer noteHangups(log)()
	ls, err := bindListeners(ctx, cfg.Listen, receives)
	if err != nil {
		return err
	}
	server := &server{cfg: cfg, secrets: secrets, log: log, receives: receives, forwards: forwards}
	return server.run(ctx, ls)
}

// noteHangups keeps SIGHUP from ending the process, which is its default, and not
// a graceful one. The returned function puts the default back.
func noteHangups(log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var noting sync.WaitGroup
	noting.Go(func() {
		for range hangups {
			log.Warn("SIGHUP: this version does not reload; the configuration stays as it is until a restart")
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		noting.Wait()
	}
}
