"""What `import porter` gives: functions and the port, for notebooks and scripts."""
