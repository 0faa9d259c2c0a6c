"""Parts of the HTML reports: markup and escaping, charts, heat-maps of credit, the sections of a run."""
